"""`hexcloud catalog refresh` against a moto server over HTTP: what a user reads, and what is kept."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hexcloud.cli.refresh import line
from hexcloud.controller.refresh import PartReport
from hexcloud.domain.market import Outcome

P5 = "aws/us-east-1/use1-az6/p5.48xlarge"
Cli = Callable[..., Any]


def price_of(cli: Cli, offer: str) -> float:
    (shown,) = json.loads(cli("catalog", "show", offer, "--json").out)
    price: float = shown["usd_per_hour"]
    return price


def test_live_prices_and_quotas_are_read_and_every_later_command_stands_on_them(cli: Cli, moto: Any) -> None:
    said = cli("catalog", "refresh", "--cloud", "aws", "--region", "us-*")
    assert said.code == 0, said.err
    assert "aws aws/us-east-1:" in said.out and "aws aws/us-west-2:" in said.out
    assert "rows read" in said.out.splitlines()[-1]
    (shown,) = json.loads(cli("catalog", "show", f"{P5}/spot", "--json").out)
    assert (shown["source"], shown["zone_name"] is not None) == ("aws", True)
    assert shown["price_age_h"] < 1
    assert next(one["outcome"] for one in shown["evidence"]) == "wins"
    listed = json.loads(
        cli(
            "catalog",
            "list",
            "--gpu",
            "H100",
            "--spot",
            "--max-usd-per-gpu-hour",
            "3",
            "--region",
            "us-east-1",
            "--json",
        ).out
    )
    assert listed and all(one["usd_per_gpu_hour"] <= 3 and one["tenure"] == "spot" for one in listed)
    report = json.loads(cli("catalog", "refresh", "--cloud", "aws", "--region", "us-east-1", "--json").out)
    assert [(one["region"], one["changes"]) for one in report] == [("us-east-1", 0)]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("throttle", "throttled"), ("expired", "expired"), ("empty", "empty")],
)
def test_a_failure_is_one_clear_line_and_keeps_the_last_good_prices(
    cli: Cli, moto: Any, trouble: str, words: str
) -> None:
    assert cli("catalog", "refresh", "--cloud", "aws", "--region", "us-east-1").code == 0
    before = price_of(cli, f"{P5}/spot")
    moto.tell(faults=[{"do": trouble, "service": "ec2"}])
    said = cli("catalog", "refresh", "--cloud", "aws", "--region", "us-east-1")
    assert said.code == 1
    told = said.out.splitlines()[0]
    assert words in told and "kept prices of" in told
    assert price_of(cli, f"{P5}/spot") == before


def test_quota_credentials_and_permissions_are_checked_for_what_a_plan_needs(cli: Cli, moto: Any) -> None:
    said = cli("preflight", "--cloud", "aws", "--target-throughput", "5k", "--policy", "on_demand_only", "--json")
    found = {check["name"]: check for check in json.loads(said.out)["checks"]}
    assert found["aws credentials"]["ok"]
    assert "aws/" in found["aws plan"]["found"]
    assert any("quota" in name for name in found)


def test_files_of_skypilot_are_a_source_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sky" / "neo").mkdir(parents=True)
    (tmp_path / "sky" / "neo" / "vms.csv").write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
        "big8,H100-SXM,8,192,2048,28.0,eu,,\nodd6,H100-SXM,6,192,2048,21.0,eu,,\n"
    )
    said = cli("catalog", "refresh", "--from", str(tmp_path / "sky"), "--as-of", "2026-07-01")
    assert said.code == 0, said.out
    assert "1 accept, 1 quarantine" in said.out
    assert said.err == ""
    undated = cli("catalog", "refresh", "--from", str(tmp_path / "sky"))
    assert "say --as-of DATE" in undated.err
    assert price_of(cli, "neo/eu/-/big8/on_demand") == 28.0


def test_again_and_again_outlives_a_store_that_fails_and_ends_quietly_with_ctrl_c(home: Path, tmp_path: Path) -> None:
    (tmp_path / "neo.csv").write_text("InstanceType,AcceleratorName,AcceleratorCount,Region,Price\nbig8,H100,8,eu,28\n")
    store = home / "hexcloud.db"
    store.mkdir(parents=True)
    command = [sys.executable, "-m", "hexcloud.cli", "catalog", "refresh", "--from", str(tmp_path), "--every", "1s"]
    command += ["--as-of", "2026-07-01"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as refreshing:
        try:
            assert refreshing.stdout is not None and refreshing.stderr is not None
            assert refreshing.stderr.readline().startswith("error: ")
            store.rmdir()
            assert "neo/eu: 1 rows" in refreshing.stdout.readline()
            refreshing.send_signal(signal.SIGINT)
            told = refreshing.communicate(timeout=30)
        finally:
            refreshing.kill()
    assert refreshing.returncode == 0 and "Traceback" not in told[1] and "Abort" not in told[1]


def test_a_report_is_one_line() -> None:
    good = PartReport(source="aws", cloud="aws", region="r", rows=3, changes=2, outcomes={Outcome.ACCEPT: 3})
    assert line(good, 0.0) == "aws aws/r: 3 rows (3 accept), 2 changes"
    assert line(good.model_copy(update={"note": "no limits"}), 0.0).endswith(", 2 changes; no limits")
    bad = PartReport(source="aws", cloud="aws", region="r", problem="it failed", good_s=100.0)
    assert line(bad, 100.0 + 7200) == "aws aws/r: it failed; kept prices of 2 h ago"
    assert line(bad.model_copy(update={"good_s": None}), 0.0).endswith("nothing was known before")
    past = good.model_copy(update={"past": True, "outcomes": {Outcome.ACCEPT: 2, Outcome.REJECT: 1}})
    assert line(past, 0.0) == "aws aws/r: 3 past prices (2 accept, 1 reject), 2 older than known"
    assert line(bad.model_copy(update={"past": True}), 0.0) == "aws aws/r: it failed; no past prices added"


REFRESH = ("catalog", "refresh", "--cloud", "aws", "--region", "us-east-1")


def past_of(cli: Cli, offer: str) -> list[float]:
    (track,) = json.loads(cli("catalog", "history", offer, "--json").out)["tracks"]
    return [change["usd_per_hour"] for change in track["changes"]]


def spot_prices(*day_and_price: tuple[float, float]) -> list[list[Any]]:
    """What AWS says of one zone: a price since so many days ago."""
    now = datetime.now(UTC)
    return [
        ["p5.48xlarge", "us-east-1a", (now - timedelta(days=day)).isoformat(), price] for day, price in day_and_price
    ]


def test_with_history_the_past_that_aws_keeps_can_be_shown_after_the_first_refresh(cli: Cli, moto: Any) -> None:
    prices = spot_prices((60, 17.0), (40, 18.0), (20, 19.5), (12, 99.0), (8, 19.0), (3, 21.0))
    moto.tell(spot_prices={"us-east-1": prices})
    said = cli(*REFRESH, "--history", "30d")
    assert said.code == 0, said.err
    assert "aws aws/us-east-1: 5 past prices (4 accept, 1 reject), 4 older than known" in said.out
    assert said.out.splitlines()[-1].endswith("4 past prices kept")
    assert past_of(cli, f"{P5}/spot") == [18.0, 19.5, 19.0, 21.0], "99 USD is over the price on demand"
    plain = cli("catalog", "history", f"{P5}/spot")
    assert "+8.3%" in plain.out and "▁" in plain.out and "█" in plain.out
    _, past = json.loads(cli(*REFRESH, "--history", "30d", "--json").out)
    assert (past["past"], past["changes"], past["outcomes"]["reject"]) == (True, 0, 1)
    cli(*REFRESH, "--history", "90d")
    assert past_of(cli, f"{P5}/spot") == [17.0, 18.0, 19.5, 19.0, 21.0], "a longer past adds what is older still"


def test_without_history_only_the_prices_of_now_are_kept(cli: Cli, moto: Any) -> None:
    moto.tell(spot_prices={"us-east-1": spot_prices((20, 19.0), (3, 21.0))})
    assert "past" not in cli(*REFRESH).out
    assert past_of(cli, f"{P5}/spot") == [21.0]


def test_a_region_whose_past_fails_is_one_line_and_stops_no_other(cli: Cli, moto: Any) -> None:
    assert cli("catalog", "refresh", "--cloud", "aws", "--region", "us-*").code == 0
    moto.tell(faults=[{"region": "us-west-2", "service": "ec2", "do": "throttle"}])
    said = cli("catalog", "refresh", "--cloud", "aws", "--region", "us-*", "--history", "7d")
    assert said.code == 1
    told = [told for told in said.out.splitlines() if "no past prices added" in told]
    assert len(told) == 1 and told[0].startswith("AWS us-west-2") and "throttled" in told[0]
    assert "aws aws/us-east-1: " in said.out and "past prices (" in said.out


def test_a_source_that_gives_no_answer_is_not_asked_for_its_past(cli: Cli, moto: Any) -> None:
    moto.tell(faults=[{"do": "expired"}])
    said = cli(*REFRESH, "--history", "7d")
    assert said.code == 1
    assert sum("expired" in told for told in said.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--cloud", "gcp", "--history", "30d"), "gcp keeps no past prices"),
        (("--cloud", "aws", "--history", "91d"), "aws keeps 90 days"),
        (("--from", "sky", "--history", "30d"), "hold no past prices"),
        (("--cloud", "aws", "--history", "soon"), "--history: 'soon' is not an interval"),
    ],
)
def test_a_past_that_nobody_keeps_is_wrong_input(cli: Cli, moto: Any, options: tuple[str, ...], says: str) -> None:
    said = cli("catalog", "refresh", *options)
    assert said.code == 2
    assert says in said.err
    assert moto.calls() == []
