"""The provisioner as its caller sees it: never slow, never twice."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hexcloud.adapters.provisioners import sky_end, skypilot
from hexcloud.adapters.provisioners.naming import RUN as RUN_TAG
from hexcloud.adapters.provisioners.naming import cluster_name
from hexcloud.adapters.provisioners.sky_calls import Progress
from hexcloud.adapters.provisioners.sky_patience import Patience
from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.errors import NotYetError, ProvisionError, UnknownProvisionError
from hexcloud.domain.fleet import Node
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import RUN, Rented, command
from tests.adapters.provisioners.sky_stand_in import SkyStandIn


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


def test_a_gang_is_one_cluster_so_its_machines_end_together(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    assert not rented.now.is_elastic
    rented.launch(gang, here)
    for _ in range(20):
        with suppress(NotYetError):
            rented.now.terminate(gang[-1].id)
    assert rented.listed() == ()


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


@dataclass
class Hung(SkyStandIn):
    """Its server takes a question and never answers."""

    patience: Patience = field(default_factory=Patience)

    def has(self, cluster: str) -> bool:
        return self.patience.wait(("has", cluster), 0.2, lambda: bool(Event().wait()))


def test_a_server_that_hangs_keeps_no_machine_alive_however_many_there_are(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rented.launch(nodes[:1], here)
    rented.launch(nodes[1:2], here)
    rented.sky = Hung(tasks=rented.sky.tasks, clusters=rented.sky.clusters)
    monkeypatch.setattr(sky_end, "DOWN_S", 0.5)
    monkeypatch.setattr(skypilot, "MAX_AT_ONCE", 1)
    rented.restart()
    give_up = time.monotonic() + 30.0
    while standing(rented) and time.monotonic() < give_up:
        for node in nodes[:2]:
            with suppress(ProvisionError):
                rented.now.terminate(node.id)
    assert not standing(rented)


def test_a_full_disk_is_a_refusal_of_a_launch_and_the_end_of_a_machine_all_the_same(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    with full_disk(rented.folder / "sky", nodes):
        with pytest.raises(UnknownProvisionError) as refused:
            rented.now.launch(nodes[1:2], here, (command(nodes[1]),))
        assert refused.value.code == "IsADirectoryError" and "on this computer" in str(refused.value)
        with pytest.raises(UnknownProvisionError, match="on this computer"):
            rented.now.terminate(nodes[0].id)
    assert not standing(rented)
    rented.end(nodes[0].id)


def standing(rented: Rented) -> bool:
    return bool(rented.machines.listed({RUN_TAG: RUN}))


@contextmanager
def full_disk(folder: Path, nodes: tuple[Node, ...]) -> Iterator[None]:
    """No record can be written: a folder is where its draft would be. (A folder that is closed stops no root.)"""
    names = [cluster_name(RUN, node.slot, node.attempt) for node in nodes]
    drafts = [folder / f".{name}.json.{os.getpid()}" for name in names]
    for draft in drafts:
        draft.mkdir()
    yield
    for draft in drafts:
        draft.rmdir()


def test_a_launch_that_hangs_inside_skypilot_is_given_up_ended_and_followed_by_the_next(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    """As when EC2 throttles SkyPilot, which then asks again for minutes; the caller's deadline ends that."""
    rented.sky.launch_polls = 10**6
    for _ in range(5):
        with pytest.raises(NotYetError) as wait:
            rented.now.launch(nodes[:1], here, (command(nodes[0]),))
        assert wait.value.phase == "provision"
    rented.end(nodes[0].id)
    assert rented.sky.of("launch")[0].progress is Progress.FAILED, "broken off"
    assert rented.listed() == () and rented.sky.clusters == {}
    rented.sky.launch_polls = 0
    rented.launch(nodes[1:2], here)
    assert rented.listed() == (nodes[1].id,)


class Hanging(SkyStandIn):
    """A server that does not come back to whoever asks how far a launch is."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = Event()
        self.is_hanging = False

    def launch(self, task: Any, cluster: str) -> str:
        request = super().launch(task, cluster)
        if self.is_hanging:
            self.go_on.wait(30.0)
        return request


def test_a_call_to_skypilot_that_never_comes_back_keeps_no_machine_alive(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sky = rented.sky = Hanging()
    rented.restart()
    hasty = SkyPilotProvisioner(RUN, rented.folder, sky, {"aws": rented.machines})
    sky.is_hanging = True
    try:
        with pytest.raises(NotYetError):
            hasty.launch(nodes[:1], here, (command(nodes[0]),))
        wait_until(lambda: bool(sky.requests))
        assert sky.progress(sky.requests[0].id) is Progress.DONE and rented.listed() == (nodes[0].id,)
        with pytest.raises(NotYetError):
            hasty.terminate(nodes[0].id)
        assert rented.listed() == (nodes[0].id,), "one step at a time, as long as there is hope"
        monkeypatch.setattr(skypilot, "STUCK_S", 0.0)
        wait_until(lambda: is_ended(hasty, nodes[0]))
        assert rented.listed() == ()
    finally:
        sky.go_on.set()
        hasty.close()
    assert rented.listed() == (), "nor does it come back with its answer"


def is_ended(provisioner: SkyPilotProvisioner, node: Node) -> bool:
    with suppress(NotYetError):
        provisioner.terminate(node.id)
        return True
    return False


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 20.0
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
