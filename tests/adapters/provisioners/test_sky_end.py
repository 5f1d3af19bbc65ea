"""How rented clusters end: by SkyPilot, else by the cloud, and confirmed by it."""

from typing import Any

import boto3
import pytest

from hexcloud.adapters.provisioners.sky_end import DOWN_S, SkyEnd
from hexcloud.adapters.provisioners.sky_records import SkyRecord, SkyRecords
from hexcloud.domain.errors import NotYetError, RateLimitError, UnknownProvisionError
from hexcloud.domain.fleet import Node, NodeId
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import Rented, SetClock, command


def test_an_end_takes_the_whole_gang_and_is_confirmed_by_the_cloud(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.launch(gang, here)
    rented.sky.down_polls = 2
    with pytest.raises(NotYetError):
        rented.now.terminate(gang[1].id)
    assert set(rented.listed()) == {node.id for node in gang}
    rented.end(gang[1].id)
    assert rented.listed() == () and len(rented.sky.of("down")) == 1
    rented.end(gang[1].id)
    rented.end(NodeId("main-1.rollout-99.1"))


def test_an_end_in_the_middle_of_a_launch_leaves_nothing(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.sky.launch_polls = 5
    with pytest.raises(NotYetError):
        rented.now.launch(nodes[:1], here, (command(nodes[0]),))
    rented.end(nodes[0].id)
    assert rented.listed() == () and rented.sky.clusters == {}
    rented.launch(nodes[:1], here)
    assert rented.listed() == () and len(rented.sky.of("launch")) == 1


def test_what_skypilot_refuses_to_end_the_cloud_ends(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.down_fails = True
    rented.end(nodes[0].id)
    assert rented.listed() == () and rented.sky.instances(next(iter(rented.sky.clusters))) == []


def test_what_skypilot_forgot_the_cloud_ends(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.clusters.clear()
    rented.end(nodes[0].id)
    assert rented.listed() == ()


@pytest.mark.parametrize(("do", "code"), [("error", "InternalError"), ("denied", "UnauthorizedOperation")])
def test_a_refused_end_is_said_and_asked_again(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...], do: str, code: str
) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.clusters.clear()
    moto.tell(faults=[{"action": "TerminateInstances", "do": do}])
    with pytest.raises(UnknownProvisionError) as refused:
        rented.end(nodes[0].id)
    assert refused.value.code == code and rented.listed() == (nodes[0].id,)
    moto.tell()
    rented.end(nodes[0].id)
    assert rented.listed() == ()


def test_a_machine_found_again_after_its_end_is_ended_again(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    (task,) = rented.sky.tasks.values()
    rented.end(nodes[0].id)
    ec2 = boto3.client("ec2", "us-east-1")
    tags = [{"Key": key, "Value": value} for key, value in task["resources"]["labels"].items()]
    ec2.run_instances(
        ImageId="ami-12c6146b", MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    ec2.close()
    assert rented.listed() == (nodes[0].id,)
    rented.end(nodes[0].id)
    assert rented.listed() == ()


def patient(rented: Rented, clock: SetClock) -> tuple[SkyEnd, SkyRecord]:
    """What ends clusters, by a clock that the test sets, and the record of the only one."""
    records = SkyRecords(rented.folder / "sky")
    return SkyEnd(rented.sky, records, {"aws": rented.machines}, clock.wall_s), records.all()[0]


def test_a_server_that_stays_silent_does_not_keep_machines_alive(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], clock: SetClock
) -> None:
    rented.launch(nodes[:1], here)
    end, record = patient(rented, clock)
    rented.sky.is_silent = True
    with pytest.raises(RateLimitError):
        end.go_on(record.cluster)
    assert rented.listed() == (nodes[0].id,)
    clock.at_s += DOWN_S + 1
    with pytest.raises(NotYetError):
        end.go_on(record.cluster)
    end.go_on(record.cluster)
    assert rented.listed() == ()


def test_a_server_that_takes_too_long_is_not_waited_for(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], clock: SetClock
) -> None:
    rented.launch(nodes[:1], here)
    end, record = patient(rented, clock)
    rented.sky.down_polls = 1000
    for _ in range(3):
        with pytest.raises(NotYetError):
            end.go_on(record.cluster)
    assert rented.listed() == (nodes[0].id,)
    clock.at_s += DOWN_S + 1
    with pytest.raises(NotYetError):
        end.go_on(record.cluster)
    assert rented.listed() == ()
    end.go_on(record.cluster)
