"""Machines of every run: on an account of (emulated) EC2, and on this computer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.provisioners.naming import cluster_name, tags_of
from hexcloud.adapters.rolls import AccountRoll, ComputerRoll
from hexcloud.domain.command import Command
from hexcloud.domain.errors import ProvisionError
from hexcloud.domain.fleet import THIS_COMPUTER, Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.world import small_market

REGIONS = ("us-east-1", "us-west-2", "eu-west-1")
QUICK = Patience(read_s=30.0, attempts=1, region_s=60.0)


def node(run: str, number: int) -> Node:
    return Node(
        id=node_id(RunId(run), SlotName(f"rollout-{number}"), 1),
        run_id=RunId(run),
        slot=SlotName(f"rollout-{number}"),
        attempt=1,
        role=Role.ROLLOUT,
        offer_id=OfferId("aws/us-east-1/a/8xL40S/spot"),
        status=NodeStatus.READY,
        requested_at_s=0.0,
    )


def start(region: str, one: Node) -> str:
    tags = tags_of([one], cluster_name(one.run_id, one.slot, one.attempt))
    spec = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    started = boto3.client("ec2", region).run_instances(**asked, TagSpecifications=[spec])
    return str(started["Instances"][0]["InstanceId"])


@pytest.fixture
def account(moto: Any) -> Iterator[AccountRoll]:
    machines = AwsMachines(QUICK)
    yield AccountRoll("aws", machines)
    moto.tell()
    AccountRoll("aws", machines).end(AccountRoll("aws", machines).look().machines)
    machines.close()


def test_an_account_lists_machines_of_every_run_in_every_region(account: AccountRoll) -> None:
    first, second = start("us-east-1", node("main-1", 1)), start("us-west-2", node("other-2", 7))
    found = {machine.id: machine for machine in account.look().machines}
    assert set(found) == {first, second}
    assert (found[first].run, found[first].nodes) == ("main-1", ("rollout-1.1",))
    assert found[second].run == "other-2" and found[second].place.startswith("aws/us-west-2/")


def test_only_the_machines_that_are_meant_end(account: AccountRoll) -> None:
    start("us-east-1", node("main-1", 1))
    kept = start("us-west-2", node("other-2", 7))
    account.end(tuple(machine for machine in account.look().machines if machine.run == "main-1"))
    assert [machine.id for machine in account.look().machines] == [kept]


def test_an_account_that_refuses_us_says_so(moto: Any, account: AccountRoll) -> None:
    moto.tell(faults=[{"do": "expired"}])
    look = account.look()
    assert look.machines == () and "expired" in look.problems["aws"]


def test_a_region_that_is_denied_is_named_and_hides_no_machine_elsewhere(moto: Any, account: AccountRoll) -> None:
    first = start("us-east-1", node("main-1", 1))
    moto.tell(faults=[{"action": "DescribeInstances", "region": "eu-west-1", "do": "denied"}])
    look = account.look()
    assert [machine.id for machine in look.machines] == [first] and list(look.problems) == ["aws/eu-west-1"]
    account.end(look.machines)
    assert account.look().machines == ()


def test_a_region_that_refuses_an_end_keeps_no_machine_elsewhere_alive(moto: Any, account: AccountRoll) -> None:
    kept = start("eu-west-1", node("main-1", 1))
    for number, region in enumerate(("us-east-1", "us-west-2")):
        start(region, node("other-2", number))
    moto.tell(faults=[{"action": "TerminateInstances", "region": "eu-west-1", "do": "denied"}])
    with pytest.raises(ProvisionError, match="eu-west-1"):
        account.end(account.look().machines)
    assert [machine.id for machine in account.look().machines] == [kept]


def test_this_computers_processes_are_machines_too(tmp_path: Path) -> None:
    provisioner, one = LocalProvisioner(tmp_path, VirtualClock(), grace_s=0.0), node("main-1", 1)
    offer = small_market().offers[0]
    provisioner.launch((one,), offer, (Command(image=None, argv=("sleep", "60"), env={}, secrets={}, files={}),))
    roll = ComputerRoll([(RunId("main-1"), provisioner)])
    (machine,) = roll.look().machines
    assert (machine.run, machine.id, machine.place) == ("main-1", one.id, THIS_COMPUTER)
    for _ in range(200):
        roll.end((machine,))
        if not roll.look().machines:
            break
    assert roll.look().machines == ()
