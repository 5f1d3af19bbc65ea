"""The launcher's own promises, which tests of whole runs stand on: launches are refused by rule, and all is logged."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError


@pytest.fixture
def ec2(moto: Any) -> Iterator[Any]:
    client = boto3.client("ec2", "us-east-1")
    yield client
    client.close()


def launch(ec2: Any, zone: str, is_spot: bool) -> str:
    """Start one machine and end it; return the code of a refusal, or nothing."""
    asked: dict[str, Any] = {"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge", "MinCount": 1, "MaxCount": 1}
    if is_spot:
        asked["InstanceMarketOptions"] = {"MarketType": "spot"}
    try:
        started = ec2.run_instances(**asked, Placement={"AvailabilityZone": zone})["Instances"]
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"] for instance in started])
    return ""


def test_capacity_is_refused_by_type_zone_and_tenure_as_often_as_said(moto: Any, ec2: Any) -> None:
    zones = {zone["ZoneName"]: zone["ZoneId"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    rule = {"type": "p5.48xlarge", "zone": zones["us-east-1a"], "tenure": "spot"}
    moto.tell(no_capacity=[{**rule, "times": 1}])
    assert launch(ec2, "us-east-1a", is_spot=False) == ""
    assert launch(ec2, "us-east-1b", is_spot=True) == ""
    assert launch(ec2, "us-east-1a", is_spot=True) == "InsufficientInstanceCapacity"
    assert launch(ec2, "us-east-1a", is_spot=True) == ""
    assert [call["launch"] for call in moto.calls() if "launch" in call] == ["ok", "ok", "refused", "ok"]


def test_a_refusal_has_the_code_that_the_scenario_names(moto: Any, ec2: Any) -> None:
    moto.tell(no_capacity=[{"tenure": "spot", "zone": "us-east-1a", "code": "MaxSpotInstanceCountExceeded"}])
    assert launch(ec2, "us-east-1a", is_spot=True) == "MaxSpotInstanceCountExceeded"


def test_a_fault_ends_when_its_times_are_over(moto: Any, ec2: Any) -> None:
    moto.tell(faults=[{"action": "DescribeVpcs", "do": "denied", "times": 1}])
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.describe_vpcs()
    assert ec2.describe_vpcs()["Vpcs"]
    assert [call["fault"] for call in moto.calls(action="DescribeVpcs")] == ["denied", None]


def test_what_the_scenario_offers_stands_instead_of_moto_s_own(moto: Any, ec2: Any) -> None:
    moto.tell(offerings={"us-east-1": {"use1-az6": ["p5.48xlarge"]}}, spot_share=0.5)
    said = ec2.describe_instance_type_offerings(LocationType="availability-zone-id")["InstanceTypeOfferings"]
    assert [(offer["InstanceType"], offer["Location"]) for offer in said] == [("p5.48xlarge", "use1-az6")]
    (price,) = ec2.describe_spot_price_history()["SpotPriceHistory"]
    assert float(price["SpotPrice"]) == pytest.approx(27.52)
