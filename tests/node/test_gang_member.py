import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.messages import Rendezvous
from hexcloud.domain.plan import Role
from hexcloud.node import gang_member
from hexcloud.node.gang_member import stand_by
from hexcloud.node.identity import Identity
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_app import serving


@pytest.fixture(autouse=True)
def admitted(coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec]) -> None:
    coordinator.access.admit(member_of(make_spec).node_id, token_sha256("node-token"), Role.TRAINER)


def identity(spec: NodeSpec) -> Identity:
    return Identity(spec=spec, token="node-token", run_secret="secret", controller_token="")


async def registered(coordinator: Coordinator) -> None:
    async with asyncio.timeout(60):
        while not coordinator.view().nodes:  # noqa: ASYNC110 - there is no event for a registration
            await asyncio.sleep(0.01)


def member_of(make_spec: Callable[[Role], NodeSpec]) -> NodeSpec:
    return make_spec(Role.ROLLOUT).model_copy(update={"role": Role.TRAINER})


def test_a_member_leaves_with_the_run(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(60):
            standing = asyncio.create_task(stand_by(identity(member_of(make_spec)), tmp_path))
            await registered(coordinator)
            coordinator.finish()
            return await standing

    assert asyncio.run(scene()) == 0


def test_a_member_whose_rank_has_failed_and_is_wanted_by_no_new_world_leaves(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(30):
            spec = member_of(make_spec)
            standing = asyncio.create_task(stand_by(identity(spec), tmp_path, argv=("false",)))
            await registered(coordinator)
            formed = Rendezvous(generation=0, store="127.0.0.1:1", is_formed=True)
            assert coordinator.gang.world is not None
            coordinator.gang.meet(formed.model_copy(update={"generation": coordinator.gang.world.generation}))
            return await standing

    monkeypatch.setattr(gang_member, "LOST_S", 0.3)
    assert asyncio.run(scene()) == 1


def test_a_member_leaves_at_an_interruption_notice(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(60):
            standing = asyncio.create_task(stand_by(identity(member_of(make_spec)), tmp_path))
            await registered(coordinator)
            os.kill(os.getpid(), signal.SIGTERM)
            return await standing

    assert asyncio.run(scene()) == 0
