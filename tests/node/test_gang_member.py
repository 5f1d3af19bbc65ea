import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.plan import Role
from hexcloud.node.gang_member import stand_by
from hexcloud.node.identity import Identity
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving


def identity(spec: NodeSpec) -> Identity:
    return Identity(spec=spec, token="node-token", run_secret="secret", controller_token="")


async def registered(coordinator: Coordinator) -> None:
    async with asyncio.timeout(5):
        while not coordinator.view().nodes:  # noqa: ASYNC110 - there is no event for a registration
            await asyncio.sleep(0.01)


def member_of(make_spec: Callable[[Role], NodeSpec]) -> NodeSpec:
    return make_spec(Role.ROLLOUT).model_copy(update={"role": Role.TRAINER})


def test_a_member_leaves_with_the_run(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(10):
            standing = asyncio.create_task(stand_by(identity(member_of(make_spec)), tmp_path))
            await registered(coordinator)
            coordinator.finish()
            return await standing

    assert asyncio.run(scene()) == 0


def test_a_member_leaves_at_an_interruption_notice(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> int:
        async with serving(coordinator, "secret"), asyncio.timeout(10):
            standing = asyncio.create_task(stand_by(identity(member_of(make_spec)), tmp_path))
            await registered(coordinator)
            os.kill(os.getpid(), signal.SIGTERM)
            return await standing

    assert asyncio.run(scene()) == 0
