import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hexcloud import wiring
from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.run import RunRecord, RunState

SMALL = ("--cloud", "nebius", "--target-throughput", "10k")


def test_nothing_is_rented_when_nobody_can_be_asked(cli: Callable[..., Any], home: Path) -> None:
    said = cli("up", *SMALL)
    assert said.code == 2
    assert "add --yes" in said.err
    assert "emulated speed: 1 wall second = " in said.out
    assert wiring.open_store().runs() == ()
    assert not (home / "runs").exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_budget_that_buys_nothing_names_the_least_that_does(
    cli: Callable[..., Any], home: Path, as_json: bool
) -> None:
    said = cli("up", *SMALL, "--budget", "0.01", "--yes", *(["--json"] if as_json else []))
    assert said.code == 1
    if as_json:
        error = json.loads(said.out)["error"]
        assert error["type"] == "BudgetError"
        assert error["least_usd"] > 0.01
    else:
        assert "USD; raise the budget" in said.err
    assert not (home / "runs").exists()


def test_a_misspelt_key_exits_2_naming_file_key_and_the_meant_one(cli: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("stpes: 5\n")
    said = cli("up", str(file), "--yes")
    assert said.code == 2
    assert "run.yaml" in said.err
    assert "did you mean steps?" in said.err


def test_a_run_of_the_same_name_that_goes_on_is_not_started_twice(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    with wiring.run_dir(run):
        said = cli("up", *SMALL, "--yes")
    assert said.code == 2
    assert "hexcloud attach main-1" in said.err
    assert store.runs() == (run,)


def test_only_a_known_run_is_resumed(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("up", "--resume", "nobody", "--yes")
    assert said.code == 2
    assert "'nobody' is unknown: main-1" in said.err


def test_an_unknown_task_is_refused_before_anything_is_asked(cli: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("task: sort_digit\n")
    said = cli("up", str(file), "--yes")
    assert said.code == 2
    assert "did you mean sort_digits?" in said.err
    assert said.out == ""


def test_a_resumed_run_must_be_able_to_pay_for_more_than_it_has_spent(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    store.set_run_state(run.id, RunState.DONE, "budget")
    said = cli("up", "--resume", "main", "--budget", "4.26", "--yes", "--json")
    error = json.loads(said.out)["error"]
    assert said.code == 1
    assert "budget 4.26 USD, of which 4.25 are spent, buys nothing useful" in error["message"]
    assert error["least_usd"] > 4.25
    kept = store.run(run.id)
    assert kept is not None
    assert (kept.state, kept.policy.budget_usd) == (RunState.DONE, 50.0), "nothing was changed"


def test_a_resumed_run_may_have_another_budget(cli: Callable[..., Any], store: SqliteStore, run: RunRecord) -> None:
    store.set_run_state(run.id, RunState.DONE, "budget")
    said = cli("up", "--resume", "main", "--budget", "500")
    assert "at most 500.00 USD" in said.out
    assert said.code == 2, "nobody was there to be asked"


def test_a_run_that_could_not_go_on_is_never_stored(cli: Callable[..., Any], tmp_path: Path) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text("no,such,columns\n")
    said = cli("up", *SMALL, "--trace", str(trace), "--yes")
    assert said.code == 2
    assert "the first line must be" in said.err
    assert wiring.open_store().runs() == ()


@pytest.mark.parametrize(
    ("content", "spelt", "named"),
    [
        ("at_h,event,offer,usd_per_hour,count\n1.0,sold_out,nebuis/*,,\n", "{}", "'nebuis/*'"),
        ('{"metadata": {"gap_seconds": 300}, "data": [1, 0]}', "{}=zzz/*", "'zzz/*'"),
        (
            "observed_at,instance_type,region,az_id,spot_usd_per_hour\n2024-02-01,p5.48xlarge,us-east-1,use1-az1,40\n",
            "{}",
            "'* of 1 recorded offers'",
        ),
    ],
)
def test_a_trace_that_meets_no_offer_is_told_before_the_run_asks(
    cli: Callable[..., Any], tmp_path: Path, content: str, spelt: str, named: str
) -> None:
    trace = tmp_path / "own.csv"
    trace.write_text(content)
    said = cli("up", *SMALL, "--trace", spelt.format(trace))
    assert f"trace own: {named} meets no offer of this market, so it does nothing\n" in said.err
    assert said.code == 2 and "add --yes" in said.err.splitlines()[-1], "said first, and then the run asks"


def test_a_trace_with_many_events_for_nobody_is_told_in_a_few_lines(cli: Callable[..., Any], tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    events = "".join(f"1.0,sold_out,moon-{number}/*,,\n" for number in range(40))
    trace.write_text(f"at_h,event,offer,usd_per_hour,count\n{events}1.0,back,nebius/*,,\n")
    said = cli("up", *SMALL, "--trace", str(trace))
    assert said.err.count("meets no offer") == 5
    assert "and 35 more like these" in said.err


def test_a_trace_that_meets_the_market_needs_no_word(cli: Callable[..., Any]) -> None:
    assert "meets no offer" not in cli("up", *SMALL, "--trace", "calm").err


def test_the_plan_that_is_asked_about_is_at_the_prices_of_the_traces_beginning(
    cli: Callable[..., Any], dear_aws: str
) -> None:
    asked = ("up", "--cloud", "aws", "--target-throughput", "10k", "--trace")
    listed, risen = (re.findall(r"cost +([0-9.]+) USD/h", cli(*asked, trace).out) for trace in ("none", dear_aws))
    assert float(risen[0]) == pytest.approx(1.2 * float(listed[0]), rel=0.05)


def test_a_run_without_a_step_to_train_is_not_resumed(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    store.save_run(run.model_copy(update={"spec": run.spec.model_copy(update={"steps": 3}), "state": RunState.DONE}))
    said = cli("up", "--resume", "main", "--yes")
    assert said.code == 2
    assert "all 3 steps are trained; --steps N, over 3, for more" in said.err


def hexcloud(home: Path, *arguments: str) -> dict[str, Any]:
    """Run a command as a user does and return its JSON."""
    argv = [sys.executable, "-m", "hexcloud.cli", *arguments, "--json"]
    environment = os.environ | {"HEXCLOUD_HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=600
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Path]:
    """Return a home whose runs have all ended afterwards, also when the test failed."""
    home = tmp_path / "home"
    yield home
    hexcloud(home, "down")


def await_step(home: Path, step: int) -> dict[str, Any]:
    give_up = time.monotonic() + 400
    while (status := hexcloud(home, "status"))["step"] < step:
        assert time.monotonic() < give_up, status
        time.sleep(1)
    return status


RUN = ("--cloud", "verda", "--cloud", "nebius", "--trace", "none", "--yes")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_whose_controller_is_killed_is_adopted_and_nothing_is_rented_twice(own_home: Path) -> None:
    home, steps = own_home, 80  # so many that a busy machine does not train them before the controller is killed
    began = hexcloud(home, "up", *RUN, "--steps", str(steps), "--detach")
    await_step(home, 2)
    os.kill(began["pid"], signal.SIGKILL)
    orphaned = hexcloud(home, "status")
    assert not orphaned["is_controlled"]
    report = hexcloud(home, "up", *RUN)
    assert (report["run"], report["state"], report["steps"], report["nodes_left"]) == (began["run"], "done", steps, 0)
    requested = [event for event in json_events(home) if event["kind"] == "node_requested"]
    assert len(requested) == len(orphaned["nodes"])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_finished_run_goes_on_from_its_checkpoint_and_a_user_ends_it(own_home: Path) -> None:
    home = own_home
    hexcloud(home, "up", *RUN, "--steps", "400", "--detach")
    reached = await_step(home, 3)["step"]
    ended = hexcloud(home, "down")
    assert (ended["state"], ended["nodes_left"]) == ("done", 0)
    more = hexcloud(home, "up", "--resume", "main", "--steps", str(ended["steps"] + 5), *RUN)
    assert (more["state"], more["nodes_left"]) == ("done", 0)
    assert more["steps"] == ended["steps"] + 5 > reached
    assert Path(more["output"]).is_dir()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_begins_on_the_prices_that_were_agreed_also_when_its_recording_differs_from_the_bundle(
    own_home: Path, dear_aws: str
) -> None:
    asked = ("--cloud", "aws", "--target-throughput", "10k", "--trace", dear_aws)
    report = hexcloud(own_home, "up", *asked, "--steps", "3", "--yes")
    assert (report.get("error"), report["state"], report["steps"], report["nodes_left"]) == (None, "done", 3, 0)


def json_events(home: Path) -> list[dict[str, Any]]:
    events: Any = hexcloud(home, "events")
    return list(events)


def test_a_run_whose_machines_need_what_is_not_set_here_is_not_adopted(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUCKET_KEY", raising=False)
    needy = run.model_copy(update={"spec": run.spec.model_copy(update={"pass_env": ("BUCKET_KEY",)})})
    store.save_run(needy)
    for way in (("--resume", "main"), ("--name", "main")):
        said = cli("up", *way, "--yes")
        assert said.code == 2 and "pass_env: BUCKET_KEY not set in this environment" in said.err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--provider", "skyplot"), "did you mean skypilot"),
        (("--provider", "skypilot"), "store: provider skypilot needs a bucket"),
        (("--provider", "skypilot", "--store", "file:///nowhere"), "store: 'file:///nowhere': provider skypilot needs"),
        (("--provider", "skypilot", "--store", "s3://[bad/x"), "store: 's3://[bad/x': a store is s3://BUCKET"),
        (
            ("--provider", "skypilot", "--store", "s3://b/x", "--pass-env", "NO_SUCH_VARIABLE"),
            "NO_SUCH_VARIABLE not set",
        ),
        (("--store", "s3://[bad/x"), "store: 's3://[bad/x': a store is s3://BUCKET"),
    ],
)
def test_what_no_run_can_be_rented_with_is_said_before_any_price_is_read(
    cli: Callable[..., Any], moto: Any, asked: tuple[str, ...], said: str
) -> None:
    done = cli("up", *asked, "--cloud", "aws", "--target-throughput", "10k", "--yes")
    assert done.code == 2 and said in done.err
    assert "reading live prices" not in done.err and moto.calls() == []


@pytest.fixture
def ended_on_aws(store: SqliteStore, run: RunRecord, moto: Any) -> RunRecord:
    """A run on real machines of AWS that has ended, whose store is there."""
    pytest.importorskip("sky", reason="SkyPilot is not installed")
    boto3 = pytest.importorskip("boto3", reason="the SDK of AWS is not installed")
    boto3.client("s3", "us-east-1").create_bucket(Bucket="resumed")
    spec = run.spec.model_copy(
        update={"provider": "skypilot", "store": "s3://resumed/x", "trace": None, "cloud": ("aws",)}
    )
    policy = run.policy.model_copy(update={"clouds": ("aws",), "budget_usd": 5000.0})
    ended = run.model_copy(update={"spec": spec, "policy": policy, "state": RunState.DONE, "clock_scale": 1.0})
    store.save_run(ended)
    return ended


def test_a_real_run_that_ended_goes_on_at_live_prices_and_only_where_its_account_may(
    cli: Callable[..., Any], store: SqliteStore, ended_on_aws: RunRecord, moto: Any
) -> None:
    none_left = dict.fromkeys(["L-417A185B", "L-DB2E81BA", "L-3819A6DF", "L-7212CCBC", "L-34B43A08"], 0)
    moto.tell(quotas={"*": none_left})
    said = cli("up", "--resume", "main", "--yes")
    assert said.code == 2
    assert "reading live prices of aws" in said.err and wiring.open_prices().current() != ()
    assert "nothing was rented, since it would fail:" in said.err and "0 left of 0" in said.err
    assert store.run(ended_on_aws.id) == ended_on_aws, "nothing was changed"


def test_a_real_run_that_ended_needs_what_a_new_one_needs_before_any_price_is_read(
    cli: Callable[..., Any], store: SqliteStore, ended_on_aws: RunRecord, moto: Any
) -> None:
    spec = ended_on_aws.spec.model_copy(update={"pass_env": ("NO_SUCH_VARIABLE",)})
    store.save_run(ended_on_aws.model_copy(update={"spec": spec}))
    moto.tell()
    said = cli("up", "--resume", "main", "--yes")
    assert said.code == 2 and "pass_env: NO_SUCH_VARIABLE not set" in said.err
    assert "reading live prices" not in said.err and moto.calls() == []
