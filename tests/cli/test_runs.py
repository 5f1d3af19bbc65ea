import json
from collections.abc import Callable
from typing import Any

from hexcloud import wiring
from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.reconcile import ENDED
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.policy import ReplanSchedule
from hexcloud.domain.run import RunRecord, RunState


def test_status_shows_the_run_and_who_could_adopt_it(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("status")
    assert said.code == 0
    assert "step 3 of 100" in said.out
    assert "nobody controls this run: `hexcloud up --resume main-1` adopts it" in said.out


def test_status_is_json_for_machines(cli: Callable[..., Any], store: SqliteStore) -> None:
    answer = json.loads(cli("status", "main", "--json").out)
    assert (answer["run"], answer["state"], answer["step"]) == ("main-1", "running", 3)
    assert (answer["spent_usd"], answer["budget_usd"], answer["usd_per_hour"]) == (4.25, 50.0, 15.0)
    assert answer["is_controlled"] is False
    assert answer["nodes"][0]["slot"] == "rollout-1"


def test_status_lists_all_runs(cli: Callable[..., Any], store: SqliteStore) -> None:
    assert "main-1" in cli("status", "--all").out
    assert [row["run"] for row in json.loads(cli("status", "--all", "--json").out)] == ["main-1"]


def test_events_can_be_read_and_filtered(cli: Callable[..., Any], store: SqliteStore) -> None:
    assert cli("events").out.splitlines()[-1].split() == ["0.007", "h", "replan", "start:", "moved"]
    events = json.loads(cli("events", "--kind", "replan", "--json").out)
    assert [(event["number"], event["kind"]) for event in events] == [(2, "replan")]


def test_nobody_replans_a_run_that_nobody_controls(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("replan")
    assert said.code == 2
    assert "nobody controls it" in said.err


def test_a_wish_to_replan_reaches_the_controller_through_the_store(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    with wiring.run_dir(run):
        assert cli("replan").code == 0
    assert store.events(run.id)[-1][1].kind == "replan_requested"


def test_watching_a_run_that_nobody_controls_is_refused(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("attach")
    assert said.code == 1
    assert "`hexcloud up --resume main-1` adopts it" in said.err


def test_down_on_a_run_that_ended_only_reports(cli: Callable[..., Any], store: SqliteStore, run: RunRecord) -> None:
    store.set_run_state(run.id, RunState.DONE, "all steps are trained")
    assert json.loads(cli("down", "--json").out)["state"] == "done"
    assert json.loads(cli("attach", "--json").out)["run"] == "main-1"


def test_a_list_of_no_runs_says_so_and_is_no_error(cli: Callable[..., Any]) -> None:
    said = cli("status", "--all")
    assert (said.code, said.out) == (0, "")
    assert "there is no run yet" in said.err
    assert cli("status", "--all", "--json").out == "[]\n"


def test_a_run_whose_trace_and_schedule_are_lost_still_ends(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    spec = run.spec.model_copy(update={"trace": "gone.csv"})
    policy = run.policy.model_copy(update={"replan": ReplanSchedule(every="5 parsecs")})
    store.save_run(run.model_copy(update={"spec": spec, "policy": policy}))
    assert cli("down", "--json").code == 0
    ended = store.run(run.id)
    assert ended is not None
    assert ended.state in ENDED
    assert all(node.status is NodeStatus.GONE for node in store.nodes(run.id))
