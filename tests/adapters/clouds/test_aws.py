"""The AWS clients against a moto server over HTTP."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from hexcloud.adapters.clouds.aws import AwsAccount, AwsRegion, Patience
from hexcloud.adapters.clouds.aws_errors import AwsError, Why

QUICK = Patience(connect_s=2, read_s=10, attempts=2, region_s=60)
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def account(moto: Any) -> Iterator[AwsAccount]:
    account = AwsAccount(QUICK)
    yield account
    account.close()


def test_lists_are_read_to_the_last_page(moto: Any, account: AwsAccount) -> None:
    moto.tell(page_size=2)
    assert len(AwsRegion(account, "us-east-1").quotas()) == 5
    assert len(moto.calls(action="ListServiceQuotas")) == 3


def test_only_machines_with_accelerators_are_asked_for(account: AwsAccount) -> None:
    region = AwsRegion(account, "us-east-1")
    types = {answer["InstanceType"] for answer in region.instance_types()}
    assert {"p5.48xlarge", "g4dn.xlarge", "trn1.32xlarge"} <= types
    assert not {name for name in types if name.startswith(("m", "c", "r"))}
    assert {answer["InstanceType"] for answer in region.offerings()} <= types


def test_the_price_list_is_asked_for_where_it_is(moto: Any, account: AwsAccount) -> None:
    moto.tell(on_demand={"*": {"p5.48xlarge": 55.04}, "cn-north-1": {"p4d.24xlarge": {"CNY": 172.87}}})
    assert len(AwsRegion(account, "eu-west-1").products()) == 1
    assert "CNY" in AwsRegion(account, "cn-north-1").products()[0]
    assert [call["region"] for call in moto.calls(action="GetProducts")] == ["us-east-1", "cn-northwest-1"]


def test_spot_history_begins_with_the_price_in_force_at_its_start(moto: Any, account: AwsAccount) -> None:
    days = [(NOW - timedelta(days=ago)).isoformat() for ago in (30, 20, 3, 1)]
    prices = [["p5.48xlarge", "us-east-1a", day, 20.0 + number] for number, day in enumerate(days)]
    moto.tell(spot_prices={"us-east-1": prices}, page_size=2)
    region = AwsRegion(account, "us-east-1")
    week = region.spot_prices(("p5.48xlarge",), NOW - timedelta(days=7))
    assert [float(answer["SpotPrice"]) for answer in week] == [23.0, 22.0, 21.0]
    now = region.spot_prices(("p5.48xlarge",), NOW)
    assert [float(answer["SpotPrice"]) for answer in now] == [23.0]


def test_throttling_is_tried_again_and_then_said(moto: Any, account: AwsAccount) -> None:
    throttled = {"action": "DescribeAvailabilityZones", "do": "throttle"}
    moto.tell(faults=[{**throttled, "times": 1}])
    assert AwsRegion(account, "us-east-1").zones()
    moto.tell(faults=[throttled])
    with pytest.raises(AwsError, match="throttled after every retry") as caught:
        AwsRegion(account, "us-east-1").zones()
    assert caught.value.why is Why.THROTTLED
    assert len(moto.calls(action="DescribeAvailabilityZones")) == QUICK.attempts


def test_pages_that_repeat_end_with_an_error(moto: Any, account: AwsAccount) -> None:
    body = '{"Quotas": [{"QuotaCode": "L-417A185B", "Value": 1}], "NextToken": "again"}'
    moto.tell(faults=[{"action": "ListServiceQuotas", "do": "body", "body": body}])
    with pytest.raises(AwsError, match="goes round in circles"):
        AwsRegion(account, "us-east-1").quotas()


def mangled(sound: str, random: Random) -> str:
    """Cut, repeat or replace a few pieces of a sound body."""
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(sound) + 1)
        end = min(start + random.randrange(12), len(sound))
        noise = "".join(chr(random.randrange(1, 0x250)) for _ in range(random.randrange(6)))
        sound = sound[:start] + random.choice(["", noise, sound[start:end] * 2]) + sound[end:]
    return sound


ZONES = (
    "<DescribeAvailabilityZonesResponse><requestId>r</requestId><availabilityZoneInfo><item>"
    "<zoneName>us-east-1a</zoneName><zoneId>use1-az4</zoneId></item></availabilityZoneInfo>"
    "</DescribeAvailabilityZonesResponse>"
)
QUOTAS = '{"Quotas": [{"QuotaCode": "L-417A185B", "Value": 384.0, "Period": {"PeriodValue": 1}}], "NextToken": null}'
ODD = ["", "\x00\xff", "{", "[]", "7", "null", "<a/>", "[" * 5000]
ODD_QUOTAS = ['{"Quotas": 7}', '{"Quotas": [7]}', '{"Quotas": [null]}', '{"NextToken": 7}', '{"NextToken": [1]}']


def test_an_answer_that_is_none_of_aws_s_gives_a_line_and_never_another_exception(moto: Any) -> None:
    """A captive portal or a proxy may answer in AWS's place."""
    random = Random(29)
    account = AwsAccount(replace(QUICK, attempts=1))
    region = AwsRegion(account, "us-east-1")
    zones = [*ODD, "<html>sign in here</html>", *(mangled(ZONES, random) for _ in range(25))]
    quotas = [*ODD, *ODD_QUOTAS, *(mangled(QUOTAS, random) for _ in range(25))]
    refused = 0
    for ask, bodies in ((region.zones, zones), (region.quotas, quotas)):
        moto.tell(faults=[{"do": "body", "body": body, "times": 1} for body in bodies])
        for _ in bodies:
            try:
                ask()
            except AwsError as error:
                refused += 1
                assert "\n" not in str(error)
    account.close()
    assert refused > 10


def test_no_call_starts_after_the_region_s_time(moto: Any) -> None:
    account = AwsAccount(replace(QUICK, region_s=-1.0))
    with pytest.raises(AwsError, match=r"DescribeAvailabilityZones: the region took over") as caught:
        AwsRegion(account, "us-east-1").zones()
    assert caught.value.why is Why.SILENT and moto.calls() == []


def test_a_silent_server_is_given_up_within_the_stated_time(moto: Any) -> None:
    moto.tell(faults=[{"action": "DescribeAvailabilityZones", "do": "hang", "hang_s": 30}])
    patience = Patience(connect_s=1, read_s=0.3, attempts=1)
    account = AwsAccount(patience)
    began = datetime.now(UTC)
    with pytest.raises(AwsError, match="no answer in time"):
        AwsRegion(account, "us-east-1").zones()
    account.close()
    assert (datetime.now(UTC) - began).total_seconds() < patience.call_s + 5


def test_an_endpoint_that_is_no_address_is_said(monkeypatch: pytest.MonkeyPatch, moto: Any) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    with pytest.raises(AwsError, match="nowhere"):
        AwsRegion(AwsAccount(QUICK), "us-east-1").zones()


@pytest.mark.parametrize(
    ("own", "asked", "home"),
    [
        (None, (), "us-east-1"),
        ("eu-west-1", ("us-west-2",), "eu-west-1"),
        ("eu-west-1", ("cn-north-1",), "cn-north-1"),
        ("eu-west-1", ("cn-*",), "eu-west-1"),
    ],
)
def test_the_account_is_asked_at_home(
    moto: Any, monkeypatch: pytest.MonkeyPatch, own: str | None, asked: tuple[str, ...], home: str
) -> None:
    if own:
        monkeypatch.setenv("AWS_DEFAULT_REGION", own)
    assert AwsAccount(QUICK).home_region(asked) == home
