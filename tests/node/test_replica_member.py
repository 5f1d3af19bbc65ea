"""A replica's machines know each other's line, and a member is there until the run ends."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.messages import StopRequest
from hexcloud.domain.plan import Role, SlotName
from hexcloud.node.address import SKY_IPS
from hexcloud.node.identity import Identity
from hexcloud.node.replica_member import line_of, stand_by
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving

MakeSpec = Callable[[Role], NodeSpec]
IPS = {SKY_IPS: "10.0.0.4\n10.0.0.5"}


def identity(spec: NodeSpec, run_secret: str = "secret") -> Identity:
    return Identity(spec=spec, token="node-token", run_secret=run_secret, controller_token="")


def member(make_spec: MakeSpec, **facts: object) -> NodeSpec:
    wide = {"gang": 2, "rank": 1, "head": SlotName("rollout-0"), "slots": 0}
    return make_spec(Role.ROLLOUT).model_copy(update={**wide, **facts})


def test_all_machines_of_a_replica_have_one_line_and_another_replica_another(make_spec: MakeSpec) -> None:
    rented = member(make_spec, replica_port=8478, engine=EngineKind.SGLANG, emulation=None)
    head, other = (
        rented.model_copy(update={"rank": 0, "slots": 8}),
        rented.model_copy(update={"head": SlotName("rollout-2")}),
    )
    lines = [line_of(identity(spec), IPS) for spec in (head, rented, other)]
    assert all(line is not None and line.address == ("10.0.0.4", 8478) for line in lines)
    near, keys = [line.near for line in lines if line], [line.key for line in lines if line]
    assert near == ["10.0.0.4", "10.0.0.5", "10.0.0.5"]
    assert keys[0] == keys[1] != keys[2]
    stranger = line_of(identity(rented, "another"), IPS)
    assert stranger is not None and stranger.key != keys[1]


def test_emulated_machines_and_machines_alone_have_no_line(make_spec: MakeSpec) -> None:
    assert line_of(identity(member(make_spec)), {}) is None
    assert line_of(identity(make_spec(Role.ROLLOUT)), IPS) is None


def test_an_engine_of_one_machine_does_not_begin_on_two(make_spec: MakeSpec) -> None:
    with pytest.raises(ConfigError, match="runs on one machine, and this replica takes 2"):
        line_of(identity(member(make_spec, replica_port=8478)), IPS)


async def registered(coordinator: Coordinator) -> None:
    async with asyncio.timeout(60):
        while not coordinator.view().nodes:  # noqa: ASYNC110 - there is no event for a registration
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["the run ends", "it is told to end"])
def test_a_member_is_there_without_a_slot_until_the_end(
    coordinator: Coordinator, make_spec: MakeSpec, tmp_path: Path, how: str
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(60):
            standing = asyncio.create_task(stand_by(identity(member(make_spec)), tmp_path))
            await registered(coordinator)
            (view,) = coordinator.view().nodes
            assert (view.role, view.slots, view.running) == (Role.ROLLOUT, 0, 0)
            if how == "the run ends":
                coordinator.stop(StopRequest(reason="enough"))
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            return await standing

    assert asyncio.run(scene()) == 0
