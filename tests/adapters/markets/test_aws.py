"""AwsMarket against a moto server over HTTP: what it reads, and one clear line for everything that goes wrong."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.markets.aws import AwsMarket
from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.refresh import Facts, refresh
from hexcloud.domain.row import Part, Row

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
QUICK = Patience(connect_s=2, read_s=10, attempts=2, region_s=60)
TWO = ("us-east-1", "us-west-2")
FACTS = Facts(usual_usd_per_gpu_hour={"H100": 4.0}, usd_per_unit={"USD": 1.0}, odd_counts={})


def fetch(regions: tuple[str, ...] | None, patience: Patience = QUICK) -> dict[str, Part]:
    parts = list(AwsMarket(regions, lambda: NOW, patience).fetch())
    assert all(part.source == "aws" and part.cloud == "aws" and part.as_of == NOW for part in parts)
    for part in parts:
        assert "\n" not in part.problem
        assert not (part.problem and (part.rows or part.quotas or part.content))
    return {part.region: part for part in parts}


def left_in(part: Part) -> dict[str, tuple[float, float | None]]:
    return {quota.key: (quota.left, quota.limit) for quota in part.quotas}


def test_a_region_is_read_whole(moto: Any) -> None:
    part = fetch(("us-east-1",))["us-east-1"]
    assert part.problem == "" and part.content
    by_id: dict[str, Row] = {row.id: row for row in part.rows}
    on_demand = by_id["aws/us-east-1/use1-az6/p5.48xlarge/on_demand"]
    spot = by_id["aws/us-east-1/use1-az6/p5.48xlarge/spot"]
    facts = (spot.gpu, spot.gpu_count, spot.vcpus, spot.memory_gib, spot.network_gb_per_s)
    assert facts == ("H100", 8, 192, 2048, 400)
    assert on_demand.price == 55.04 and spot.price == pytest.approx(55.04 * 0.4)
    assert spot.zone_name and spot.zone_name.startswith("us-east-1") and spot.listed
    assert spot.placement_score == 9
    assert {row.gpu for row in part.rows} == {"H100", "A100-40GB", "T4", "A10G"}
    assert left_in(part)["aws/us-east-1/L-417A185B"] == (384, 384)


def test_without_regions_all_that_the_account_may_use_are_read_at_the_same_time(moto: Any) -> None:
    parts = fetch(None)
    assert set(parts) == {"us-east-1", "us-west-2", "eu-west-1"}
    assert all(part.rows for part in parts.values())


def test_a_star_asks_for_some_of_the_account_s_regions(moto: Any) -> None:
    assert set(fetch(("us-*", "us-west-2"))) == {"us-east-1", "us-west-2"}
    assert "none is called mars-*; the account has eu-west-1, us-east-1, us-west-2" in fetch(("mars-*",))["*"].problem


def test_the_newest_of_a_spot_history_over_many_pages_counts(moto: Any) -> None:
    steps = [(NOW - timedelta(minutes=minutes), 30.0 - minutes) for minutes in range(20, 0, -1)]
    prices = [["p5.48xlarge", "us-east-1a", at.isoformat(), price] for at, price in steps]
    moto.tell(spot_prices={"us-east-1": prices}, page_size=3)
    part = fetch(("us-east-1",))["us-east-1"]
    assert [row.price for row in part.rows if row.tenure == "spot"] == [29.0]
    (past,) = AwsMarket(("us-east-1",), lambda: NOW, QUICK).past(days=7)
    assert [(price.at_s, price.list_price) for price in sorted(past.prices, key=lambda price: price.at_s)] == [
        (at.timestamp(), price) for at, price in steps
    ]
    assert {price.offer_id for price in past.prices} == {"aws/us-east-1/use1-az6/p5.48xlarge/spot"}
    assert (past.currency, past.as_of, past.problem) == ("USD", NOW, "")
    assert past.gpus["p5.48xlarge"] == ("H100", 8)


def test_of_the_past_only_the_days_asked_for_are_read_and_at_most_those_that_aws_keeps(moto: Any) -> None:
    days_ago = (100, 95, 60, 5)
    prices = [["p5.48xlarge", "us-east-1a", (NOW - timedelta(days=ago)).isoformat(), float(ago)] for ago in days_ago]
    moto.tell(spot_prices={"us-east-1": prices})
    market = AwsMarket(("us-east-1",), lambda: NOW, QUICK)
    read = {days: next(iter(market.past(days))).prices for days in (1.0, 30.0, 1000.0)}
    assert {days: sorted(price.list_price for price in past) for days, past in read.items()} == {
        1.0: [5.0],
        30.0: [5.0, 60.0],
        1000.0: [5.0, 60.0, 95.0],
    }, "the first is the price in force when the time asked for begins"


def test_a_region_whose_past_cannot_be_read_leaves_the_other_alone(moto: Any) -> None:
    moto.tell(faults=[{"region": "us-west-2", "action": "DescribeSpotPriceHistory", "do": "throttle"}])
    pasts = {past.region: past for past in AwsMarket(TWO, lambda: NOW, QUICK).past(30)}
    assert pasts["us-west-2"].problem.startswith("AWS us-west-2, DescribeSpotPriceHistory: throttled")
    assert pasts["us-west-2"].prices == ()
    assert pasts["us-east-1"].problem == "" and pasts["us-east-1"].prices


def test_a_region_without_accelerators_has_no_past_and_no_problem(moto: Any) -> None:
    moto.tell(offerings={"us-east-1": {"use1-az1": ["m5.large"]}})
    (past,) = AwsMarket(("us-east-1",), lambda: NOW, QUICK).past(30)
    assert (past.problem, past.prices) == ("", ())


def test_machines_that_run_are_taken_off_the_limits(moto: Any) -> None:
    client = boto3.client("ec2", "us-east-1")
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge", "MinCount": 1, "MaxCount": 1}
    instance = client.run_instances(**asked)["Instances"][0]["InstanceId"]
    try:
        left = left_in(fetch(("us-east-1",))["us-east-1"])
    finally:
        client.terminate_instances(InstanceIds=[instance])
        client.close()
    assert left["aws/us-east-1/L-417A185B"] == (192, 384)


def test_scores_that_are_not_allowed_are_absent_and_no_problem(moto: Any) -> None:
    moto.tell(placement_scores={}, faults=[{"action": "GetSpotPlacementScores", "do": "denied"}])
    part = fetch(("us-east-1",))["us-east-1"]
    assert part.problem == "" and part.rows
    assert {row.placement_score for row in part.rows} == {None}
    assert len(moto.calls(action="GetSpotPlacementScores")) == 1


@pytest.mark.parametrize("action", ["GetProducts", "ListServiceQuotas"])
def test_what_the_account_may_not_ask_for_leaves_the_rest_and_takes_nothing_that_was_known_away(
    moto: Any, tmp_path: Path, action: str
) -> None:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    market = AwsMarket(("us-east-1",), lambda: NOW, QUICK)
    (whole,) = refresh(market, prices, FACTS, lambda: NOW)
    known, limits = {belief.row.id: belief.row.price for belief in prices.current()}, prices.quotas()
    assert {belief.row.tenure for belief in prices.current()} == {"on_demand", "spot"} and limits
    moto.tell(faults=[{"action": action, "do": "denied"}])
    (report,) = refresh(market, prices, FACTS, lambda: NOW)
    assert (report.problem, report.changes) == ("", 0)
    assert f":{action}" in report.note and whole.note == ""
    assert {belief.row.id: belief.row.price for belief in prices.current()} == known
    assert [quota.key for quota in prices.quotas()] == [quota.key for quota in limits]
    prices.close()


def test_without_prices_on_demand_from_the_start_spot_is_read_all_the_same(moto: Any) -> None:
    moto.tell(faults=[{"action": action, "do": "denied"} for action in ("GetProducts", "ListServiceQuotas")])
    part = fetch(("us-east-1",))["us-east-1"]
    assert {row.tenure for row in part.rows if row.price > 0} == {"spot"}
    assert part.quotas == () and moto.calls(action="DescribeInstances") == []


def test_a_machine_in_a_local_zone_has_no_price_on_demand(moto: Any) -> None:
    """The zone is opted in to, so offerings name it; its prices are in another list."""
    moto.tell(offerings={"us-east-1": {"use1-az6": ["p5.48xlarge"], "use1-bos1-az1": ["p5.48xlarge"]}})
    part = fetch(("us-east-1",))["us-east-1"]
    assert {row.zone for row in part.rows if row.tenure == "on_demand"} == {"use1-az6"}


CALLS = (
    "DescribeAvailabilityZones",
    "DescribeInstanceTypes",
    "DescribeInstanceTypeOfferings",
    "DescribeSpotPriceHistory",
    "GetProducts",
    "ListServiceQuotas",
)


@pytest.mark.parametrize("action", CALLS)
def test_an_empty_answer_is_a_problem_and_never_an_empty_region(moto: Any, action: str) -> None:
    moto.tell(faults=[{"action": action, "do": "empty"}])
    problem = fetch(("us-east-1",))["us-east-1"].problem
    assert problem.startswith(f"AWS us-east-1, {action}: the answer is empty")


def test_a_region_without_accelerators_is_no_problem_and_has_no_rows(moto: Any) -> None:
    moto.tell(offerings={"us-east-1": {"use1-az1": ["m5.large"]}})
    part = fetch(("us-east-1",))["us-east-1"]
    assert (part.problem, part.rows) == ("", ()) and part.quotas


@pytest.mark.parametrize(
    ("do", "says"),
    [
        ("throttle", "throttled after every retry; wait a few minutes"),
        ("expired", "the credentials have expired; sign in again"),
        ("denied", "ask for the IAM permission ec2:DescribeSpotPriceHistory"),
        ("error", "InternalError"),
    ],
)
def test_one_region_that_fails_leaves_the_other_alone(moto: Any, do: str, says: str) -> None:
    moto.tell(faults=[{"region": "us-west-2", "action": "DescribeSpotPriceHistory", "do": do}])
    parts = fetch(TWO)
    assert parts["us-west-2"].problem.startswith("AWS us-west-2, DescribeSpotPriceHistory: ")
    assert says in parts["us-west-2"].problem
    assert parts["us-east-1"].problem == "" and parts["us-east-1"].rows


def test_a_region_that_hangs_does_not_hold_up_the_others(moto: Any) -> None:
    moto.tell(faults=[{"region": "us-east-1", "action": "DescribeInstanceTypes", "do": "hang", "hang_s": 30}])
    patience = replace(QUICK, read_s=3, attempts=1)
    parts = list(AwsMarket(TWO, lambda: NOW, patience).fetch())
    assert [part.region for part in parts] == ["us-west-2", "us-east-1"]
    assert parts[0].problem == ""
    assert "us-east-1, DescribeInstanceTypes: no answer in time" in parts[1].problem


@pytest.mark.parametrize(("do", "says"), [("expired", "sign in again"), ("unknown", "check the keys")])
def test_credentials_that_are_good_nowhere_are_said_once(moto: Any, do: str, says: str) -> None:
    moto.tell(faults=[{"do": do}])
    parts = fetch(TWO)
    assert list(parts) == ["*"] and says in parts["*"].problem


def test_absent_credentials_are_said_once_without_a_call(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "aws configure" in fetch(None)["*"].problem
    (past,) = AwsMarket(None, lambda: NOW, QUICK).past(30)
    assert past.region == "*" and "aws configure" in past.problem
    assert moto.calls() == []


def test_a_server_that_is_not_there_is_said_for_each_region(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    parts = fetch(TWO, replace(QUICK, attempts=1))
    assert set(parts) == set(TWO)
    assert all("AWS_ENDPOINT_URL" in part.problem for part in parts.values())


def test_a_secret_in_the_endpoint_is_in_no_problem(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in ("http://user:hunter2@127.0.0.1:9", "http://user:hunter2@127.0.0.1:port", "user:hunter2@127.0.0.1"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        parts = fetch(("us-east-1",), replace(QUICK, attempts=1))
        assert all(part.problem and "hunter2" not in part.problem for part in parts.values()), endpoint


def test_an_account_that_may_use_no_region_is_a_problem(moto: Any) -> None:
    moto.tell(regions=[])
    assert "DescribeRegions: the answer is empty" in fetch(None)["*"].problem


def test_the_same_answer_later_has_the_same_content(moto: Any) -> None:
    first, second = (fetch(("us-east-1",))["us-east-1"] for _ in range(2))
    assert first.content == second.content
    moto.tell(spot_share=0.5)
    assert fetch(("us-east-1",))["us-east-1"].content != first.content
