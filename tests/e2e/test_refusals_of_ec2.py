"""What EC2 may say no with, and the line that a user can act on. In this process, on emulated EC2 over HTTP."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.hands import END_REFUSED
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.run import RunRecord, RunState
from tests.e2e.ec2_controller import TIMING, Doom, is_through, open_controller
from tests.e2e.test_killed_controller import nothing_is_left, on_ec2, one_machine_for_each_slot

pytestmark = pytest.mark.slow
World = tuple[Controller, SqliteStore, RunRecord]


@pytest.fixture
def world(moto: Any, tmp_path: Path) -> World:
    moto.tell(types=["m5.large"])
    return open_controller(tmp_path, 20.0, Doom(None))


def refuse(moto: Any, action: str, **fault: Any) -> None:
    moto.tell(types=["m5.large"], faults=[{"service": "ec2", "action": action, **fault}])


def live_until(world: World, is_done: Callable[[], bool], wall_s: float = 90.0) -> None:
    give_up = time.monotonic() + wall_s
    while not is_done():
        assert time.monotonic() < give_up, [event.text for _, event in world[1].events(world[2].id)][-5:]
        world[0].reconcile_once()
        time.sleep(TIMING.poll_s)


def is_up(world: World) -> bool:
    return is_through(world[1], world[2])


def events(world: World, kind: str) -> list[Event]:
    return [event for _, event in world[1].events(world[2].id) if event.kind == kind]


def state(world: World) -> RunRecord:
    run = world[1].run(world[2].id)
    assert run is not None
    return run


def end(world: World, moto: Any) -> None:
    moto.tell(types=["m5.large"])
    world[0].stop("the test is over")
    live_until(world, lambda: state(world).state in {RunState.DONE, RunState.FAILED})


def test_an_unknown_code_is_tried_three_times_told_and_gone_round(world: World, moto: Any, tmp_path: Path) -> None:
    refuse(moto, "RunInstances", do="error", code="FlyingPigs", status=400, message="no such luck", times=3)
    live_until(world, lambda: is_up(world))
    told = events(world, "launch_failed")
    assert len(told) == 3
    assert "FlyingPigs" in told[0].text and "no such luck" in told[0].text and " on aws/" in told[0].text
    one_machine_for_each_slot(tmp_path)
    end(world, moto)
    nothing_is_left(tmp_path)


def test_throttling_is_waited_out_and_blocks_no_pool(world: World, moto: Any, tmp_path: Path) -> None:
    refuse(moto, "RunInstances", do="throttle", times=3)
    live_until(world, lambda: is_up(world))
    assert not events(world, "pool_blocked") and not events(world, "launch_failed")
    one_machine_for_each_slot(tmp_path)
    end(world, moto)
    nothing_is_left(tmp_path)


def test_expired_credentials_stop_the_run_with_a_line_and_what_runs_is_ended_once_they_are_back(
    world: World, moto: Any, tmp_path: Path
) -> None:
    live_until(world, lambda: is_up(world))
    moto.tell(types=["m5.large"], faults=[{"do": "expired"}])
    live_until(world, lambda: state(world).state is RunState.STOPPING)
    assert state(world).reason.startswith("the provider refused our credentials: ")
    end(world, moto)
    assert state(world).state is RunState.FAILED
    nothing_is_left(tmp_path)


@pytest.mark.parametrize(("code", "status"), [("InternalError", 500), ("UnauthorizedOperation", 403)])
def test_a_refused_end_is_told_with_id_price_and_age_and_goes_on_being_asked(
    world: World, moto: Any, tmp_path: Path, code: str, status: int
) -> None:
    live_until(world, lambda: is_up(world))
    refuse(moto, "TerminateInstances", do="error", code=code, status=status, message="not today")
    world[0].stop("the user said so")
    live_until(world, lambda: len(events(world, END_REFUSED)) == 3)
    for event in events(world, END_REFUSED):
        assert event.node in event.text and "USD/h" in event.text and "h old" in event.text
    assert len(on_ec2(tmp_path)) == 3
    standing = [node for node in world[1].nodes(world[2].id) if node.status is NodeStatus.STOPPING]
    assert len(standing) == 3, "a record goes only when EC2 no longer lists the machine"
    end(world, moto)
    nothing_is_left(tmp_path)
