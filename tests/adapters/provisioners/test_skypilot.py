"""The provisioner as its caller sees it: never slow, never twice."""

from contextlib import suppress

import pytest

from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.errors import NotYetError
from hexcloud.domain.fleet import Node
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import RUN, Rented, command


def test_a_node_is_launched_at_most_once_however_often_it_is_asked_for(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    asked = len(rented.sky.requests)
    for _ in range(3):
        rented.launch(nodes[:1], here)
    rented.restart()
    rented.launch(nodes[:1], here)
    assert len(rented.sky.requests) == asked and rented.listed() == (nodes[0].id,)


@pytest.mark.parametrize("turns", range(1, 5))
def test_a_restart_in_the_middle_of_a_launch_finds_it_again(
    rented: Rented, here: Offer, gang: tuple[Node, ...], turns: int
) -> None:
    rented.sky.launch_polls = 1
    for _ in range(turns):
        with suppress(NotYetError):
            rented.now.launch(gang, here, tuple(command(node) for node in gang))
    rented.restart()
    rented.launch(gang, here)
    assert len(rented.sky.of("launch")) == 1 and set(rented.listed()) == {node.id for node in gang}


def test_a_slow_answer_never_holds_the_caller(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    hasty = SkyPilotProvisioner(RUN, rented.folder, rented.sky, {"aws": rented.machines}, wait_s=0.0)
    with pytest.raises(NotYetError) as wait:
        hasty.launch(nodes[:1], here, (command(nodes[0]),))
    assert wait.value.phase == "provision"
    hasty.close()
    rented.launch(nodes[:1], here)
    assert len(rented.sky.of("launch")) == 1


def test_a_cloud_that_cannot_be_asked_for_machines_is_not_rented_from(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    elsewhere = here.model_copy(update={"cloud": "lambda"})
    assert rented.refusal(nodes[:1], elsewhere).code == "cloud"
