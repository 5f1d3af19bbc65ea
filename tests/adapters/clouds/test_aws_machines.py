"""Machines by tag on EC2, against a moto server over HTTP."""

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.clouds.aws_machines import AwsMachines, machine_of
from hexcloud.adapters.clouds.machines import EVERYWHERE, Machine
from hexcloud.domain.errors import CredentialsError, RateLimitError, UnknownProvisionError

QUICK = Patience(connect_s=2, read_s=10, attempts=1, region_s=60)
REGIONS = ("us-east-1", "us-west-2")
RUN = {"hexcloud-run": "main-1"}


@pytest.fixture
def ec2(moto: Any) -> Iterator[dict[str, Any]]:
    clients = {region: boto3.client("ec2", region) for region in REGIONS}
    yield clients
    moto.tell()
    for client in clients.values():
        reservations = client.describe_instances()["Reservations"]
        ids = [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]
        for one in ids:
            client.modify_instance_attribute(InstanceId=one, DisableApiTermination={"Value": False})
        if ids:
            client.terminate_instances(InstanceIds=ids)
        client.close()


@pytest.fixture
def machines(moto: Any) -> Iterator[AwsMachines]:
    found = AwsMachines(QUICK)
    yield found
    found.close()


def start(ec2: dict[str, Any], region: str, tags: dict[str, str], count: int = 1) -> list[str]:
    spec = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "g5.xlarge", "MinCount": count, "MaxCount": count}
    started = ec2[region].run_instances(**asked, TagSpecifications=[spec])["Instances"]
    return [instance["InstanceId"] for instance in started]


def ids(found: tuple[Machine, ...]) -> set[str]:
    return {machine.id for machine in found}


def test_machines_of_a_run_are_found_in_every_region(ec2: dict[str, Any], machines: AwsMachines) -> None:
    ours = start(ec2, "us-east-1", RUN | {"hexcloud-slot": "rollout-0"}) + start(ec2, "us-west-2", RUN)
    other = start(ec2, "us-east-1", {"hexcloud-run": "main-2"})
    start(ec2, "us-east-1", {"Name": "somebody-s"})
    assert ids(machines.listed(RUN)) == set(ours)
    assert ids(machines.listed({"hexcloud-run": ""}, REGIONS)) == {*ours, *other}
    assert ids(machines.listed(RUN, ["us-west-2"])) == {ours[1]}
    (found,) = machines.listed(RUN, ["us-east-1"])
    assert (found.cloud, found.region, found.instance_type) == ("aws", "us-east-1", "g5.xlarge")
    assert found.zone.startswith("us-east-1") and found.private_ip and found.tags["hexcloud-slot"] == "rollout-0"


def test_a_stopped_machine_still_bills_and_an_ended_one_is_gone(ec2: dict[str, Any], machines: AwsMachines) -> None:
    stopped, ended = start(ec2, "us-east-1", RUN, count=2)
    ec2["us-east-1"].stop_instances(InstanceIds=[stopped])
    ec2["us-east-1"].terminate_instances(InstanceIds=[ended])
    assert ids(machines.listed(RUN, ["us-east-1"])) == {stopped}


def test_ec2_tells_since_when_a_machine_bills_and_for_a_while_also_until_when(
    ec2: dict[str, Any], machines: AwsMachines
) -> None:
    before_s = time.time() - 1.0  # EC2 speaks in whole seconds
    running, ended = start(ec2, "us-east-1", RUN, count=2)
    ec2["us-east-1"].terminate_instances(InstanceIds=[ended])
    found = {machine.id: machine for machine in machines.known(RUN, ["us-east-1"])}
    one, other = found[running], found[ended]
    assert one.began_s is not None and other.began_s is not None and other.ended_s is not None
    assert (one.exists, one.ended_s, other.exists) == (True, None, False)
    assert before_s <= other.began_s <= time.time() and before_s <= other.ended_s <= time.time()


@pytest.mark.parametrize(
    ("reason", "ended_s"),
    [
        ("User initiated (2026-11-29 23:39:14 UTC)", 1795995554.0),
        ("User initiated (2026-11-29 23:39:14 GMT)", 1795995554.0),
        ("Server.SpotInstanceTermination", None),
        ("User initiated (2026-19-39 23:39:14 UTC)", None),
        (None, None),
    ],
)
def test_an_end_at_an_unknown_moment_is_no_moment(reason: str | None, ended_s: float | None) -> None:
    found = machine_of("eu-west-1", {"State": {"Name": "terminated"}, "StateTransitionReason": reason})
    assert (found.exists, found.ended_s, found.began_s) == (False, ended_s, None)
    assert machine_of("eu-west-1", {"State": {"Name": "stopped"}, "StateTransitionReason": reason}).ended_s is None


def test_machines_of_several_regions_are_ended(ec2: dict[str, Any], machines: AwsMachines) -> None:
    start(ec2, "us-east-1", RUN, count=2)
    start(ec2, "us-west-2", RUN)
    machines.end(machines.listed(RUN))
    assert machines.listed(RUN) == ()
    machines.end(())


def test_one_that_is_unknown_by_now_does_not_save_the_others(ec2: dict[str, Any], machines: AwsMachines) -> None:
    start(ec2, "us-east-1", RUN)
    (alive,) = machines.listed(RUN, ["us-east-1"])
    forgotten = alive._replace(id="i-0123456789abcdef0")
    machines.end([forgotten, alive])
    assert machines.listed(RUN, ["us-east-1"]) == ()


def test_a_region_that_refuses_keeps_no_machine_of_another_alive(
    moto: Any, ec2: dict[str, Any], machines: AwsMachines
) -> None:
    kept = start(ec2, "us-east-1", RUN, count=2)
    start(ec2, "us-west-2", RUN)
    found = machines.listed(RUN, REGIONS)
    moto.tell(faults=[{"action": "TerminateInstances", "region": "us-east-1", "do": "unknown"}])
    with pytest.raises(UnknownProvisionError, match="us-east-1"):
        machines.end(found)
    assert ids(machines.listed(RUN, REGIONS)) == set(kept)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_that_is_protected_keeps_no_neighbour_alive(ec2: dict[str, Any], machines: AwsMachines, at: int) -> None:
    kept = start(ec2, "us-east-1", RUN, count=3)[at]
    ec2["us-east-1"].modify_instance_attribute(InstanceId=kept, DisableApiTermination={"Value": True})
    found = machines.listed(RUN, ["us-east-1"])
    with pytest.raises(UnknownProvisionError, match=kept) as refused:
        machines.end(found)
    assert refused.value.code == "OperationNotPermitted"
    assert ids(machines.listed(RUN, ["us-east-1"])) == {kept}


def test_a_region_that_throttles_is_not_asked_for_each_machine(
    moto: Any, ec2: dict[str, Any], machines: AwsMachines
) -> None:
    start(ec2, "us-east-1", RUN, count=3)
    found = machines.listed(RUN, ["us-east-1"])
    moto.tell(faults=[{"action": "TerminateInstances", "do": "throttle"}])
    before = len(moto.calls())
    with pytest.raises(RateLimitError):
        machines.end(found)
    assert len(moto.calls()) == before + 1


def test_a_refused_end_is_said_with_its_code(moto: Any, ec2: dict[str, Any], machines: AwsMachines) -> None:
    start(ec2, "us-east-1", RUN)
    found = machines.listed(RUN, ["us-east-1"])
    moto.tell(faults=[{"action": "TerminateInstances", "do": "error"}])
    with pytest.raises(UnknownProvisionError) as refused:
        machines.end(found)
    assert refused.value.code == "InternalError"
    assert machines.listed(RUN, ["us-east-1"]) == found


def test_a_denied_end_names_the_permission(moto: Any, ec2: dict[str, Any], machines: AwsMachines) -> None:
    start(ec2, "us-east-1", RUN)
    found = machines.listed(RUN, ["us-east-1"])
    moto.tell(faults=[{"action": "TerminateInstances", "do": "denied"}])
    with pytest.raises(UnknownProvisionError, match=r"us-east-1, TerminateInstances: .*ec2:TerminateInstances") as said:
        machines.end(found)
    assert said.value.code == "UnauthorizedOperation"


@pytest.mark.parametrize(("do", "kind"), [("throttle", RateLimitError), ("expired", CredentialsError)])
def test_no_answer_of_one_region_is_no_list(moto: Any, machines: AwsMachines, do: str, kind: type[Exception]) -> None:
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-west-2", "do": do}])
    with pytest.raises(kind):
        machines.listed(RUN, REGIONS)
    assert machines.listed(RUN, ["us-east-1"]) == ()


def test_a_region_that_does_not_answer_hides_no_machine_elsewhere(
    moto: Any, ec2: dict[str, Any], machines: AwsMachines
) -> None:
    ours = start(ec2, "us-east-1", RUN)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-west-2", "do": "denied"}])
    answer = machines.look(RUN)
    assert ids(answer.machines) >= set(ours) and list(answer.problems) == ["us-west-2"]
    moto.tell(faults=[{"action": "DescribeRegions", "do": "denied"}])
    assert list(machines.look(RUN).problems) == [EVERYWHERE]


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (("AuthFailure", ""), UnknownProvisionError),
        (("OptInRequired", ""), UnknownProvisionError),
        (("AuthFailure", "dead"), CredentialsError),
    ],
)
def test_a_region_that_is_not_enabled_is_no_sign_of_dead_credentials(
    moto: Any, machines: AwsMachines, codes: tuple[str, str], kind: type[Exception]
) -> None:
    code, dead = codes
    faults = [{"service": "ec2", "region": "us-west-2", "do": "unknown", "code": code}]
    moto.tell(faults=faults + ([{"service": "sts", "do": "unknown"}] if dead else []))
    (problem,) = machines.look(RUN, REGIONS).problems.values()
    assert type(problem) is kind and problem.code == code
    with pytest.raises(kind):
        machines.zone_name("us-west-2", "usw2-az1")


def test_a_machine_of_a_gang_is_told_apart(ec2: dict[str, Any], machines: AwsMachines) -> None:
    start(ec2, "us-east-1", RUN | {"hexcloud-gang": "2"}, count=2)
    one, two = machines.listed(RUN, ["us-east-1"])
    machines.tag(one, {"hexcloud-node": "trainer-0_2e1"})
    assert ids(machines.listed(RUN | {"hexcloud-node": "trainer-0_2e1"}, ["us-east-1"])) == {one.id}
    assert ids(machines.listed(RUN, ["us-east-1"])) == {one.id, two.id}


def test_a_zone_id_becomes_the_account_s_own_name(machines: AwsMachines) -> None:
    assert machines.zone_name("us-east-1", "use1-az6") == "us-east-1a"
    assert machines.zone_name("us-east-1", "us-east-1a") == "us-east-1a"
    with pytest.raises(UnknownProvisionError, match="no zone use1-az99"):
        machines.zone_name("us-east-1", "use1-az99")
