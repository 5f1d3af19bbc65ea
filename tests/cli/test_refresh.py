"""`hexcloud catalog refresh` against a moto server over HTTP: what a user reads, and what is kept."""

import json
from collections.abc import Callable
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
    assert price_of(cli, "neo/eu/-/big8/on_demand") == 28.0


def test_a_report_is_one_line() -> None:
    good = PartReport(source="aws", cloud="aws", region="r", rows=3, changes=2, outcomes={Outcome.ACCEPT: 3})
    assert line(good, 0.0) == "aws aws/r: 3 rows (3 accept), 2 changes"
    bad = PartReport(source="aws", cloud="aws", region="r", problem="it failed", good_s=100.0)
    assert line(bad, 100.0 + 7200) == "aws aws/r: it failed; kept prices of 2 h ago"
    assert line(bad.model_copy(update={"good_s": None}), 0.0).endswith("nothing was known before")
