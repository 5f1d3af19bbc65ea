from collections.abc import Callable

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import INTERRUPTION, Notice
from hexcloud.simulator.gang import SimGang
from hexcloud.simulator.machine import Machine
from hexcloud.simulator.simulation import Simulation

Member = Callable[[str], Machine]
RESIZE_S = 8.0


@pytest.fixture
def member(training: Simulation) -> Member:
    """Make a trainer's machine like the simulation's, of a gang of two."""
    head = next(machine for machine in training.cloud.running() if machine.is_head)

    def make(name: str) -> Machine:
        spec: NodeSpec = head.spec.model_copy(update={"node_id": NodeId(name), "gang": 2})
        return Machine(head.offer, spec, name, name == "head", 0.0, 0.0, 1e9, is_registered=True)

    return make


def test_a_gang_trains_from_when_it_is_whole_and_as_fast_as_it_is_large(member: Member) -> None:
    gang, head, one, two = SimGang(RESIZE_S), member("head"), member("one"), member("two")
    one.is_registered = False
    assert not gang.follow(head, (head, one), 0.0) and gang.share(head) == 0
    one.is_registered = True
    assert not gang.follow(head, (head, one), 1.0) and gang.share(head) == 1
    assert not gang.follow(head, (head, one, two), 2.0) and gang.share(head) == 1.5


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_member_that_is_told_to_go_hands_on_its_share(member: Member, is_noticed: bool) -> None:
    gang, head, one = SimGang(RESIZE_S), member("head"), member("one")
    gang.follow(head, (head, one), 0.0)
    one.is_draining, one.notice = not is_noticed, Notice(cause=INTERRUPTION, until_s=9.0) if is_noticed else None
    assert not gang.follow(head, (head, one), 10.0) and one.id in gang.world
    assert list(gang.due_s()) == [10.0 + RESIZE_S]
    assert not gang.follow(head, (head, one), 10.0 + RESIZE_S) and gang.world == {head.id}
    one.end(20.0, "terminated")
    assert not gang.follow(head, (head, one), 20.0)


@pytest.mark.parametrize("how", ["ended", "silent"])
def test_a_member_that_goes_without_a_word_takes_its_share_along(member: Member, how: str) -> None:
    gang, head, one = SimGang(RESIZE_S), member("head"), member("one")
    gang.follow(head, (head, one), 0.0)
    one.ended_s, one.silent_since_s = (1.0, None) if how == "ended" else (None, 1.0)
    assert gang.follow(head, (head, one), 1.0)
    assert gang.world == {head.id}
    gang.begin()
    assert not gang.world
