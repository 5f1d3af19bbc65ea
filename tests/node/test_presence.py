import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import Register, Renewal
from hexcloud.domain.plan import Role
from hexcloud.node.presence import Leave, Presence, be_present
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.pointer import read_pointer
from hexcloud.runtime.probe import LinkCap, ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink

RUN = RunId("run")


def test_the_head_is_seen_and_measures_its_peers(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> None:
        head, peer = make_spec(Role.TRAINER), ProbeServer()
        await peer.start()
        async with (
            serving(coordinator, "secret"),
            CoordinatorLink(partial(read_pointer, tmp_path, RUN, "secret"), "head-token") as link,
        ):
            present = asyncio.create_task(be_present(link, Presence(head, "127.0.0.1:1", LinkCap())))
            node = make_spec(Role.ROLLOUT).node_id
            coordinator.register(Register(node_id=node, role=Role.ROLLOUT, slots=1, address=f"127.0.0.1:{peer.port}"))
            async with asyncio.timeout(60):
                while not coordinator.view().links:  # noqa: ASYNC110 - there is no event for a measurement
                    await asyncio.sleep(0.01)
            assert coordinator.view().links[0].node_id == head.node_id
            assert {view.node_id: view.address for view in coordinator.view().nodes}[head.node_id] == "127.0.0.1:1"
            present.cancel()
            await asyncio.gather(present, return_exceptions=True)
        await peer.close()

    asyncio.run(scene())


def test_a_silent_coordinator_is_waited_for(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    async def scene() -> None:
        async with CoordinatorLink(partial(read_pointer, tmp_path, RUN, "secret"), "head-token") as link:
            present = asyncio.create_task(be_present(link, Presence(make_spec(Role.TRAINER), "127.0.0.1:1", LinkCap())))
            await asyncio.sleep(0.15)
            async with serving(coordinator, "secret"), asyncio.timeout(60):
                while not coordinator.view().nodes:  # noqa: ASYNC110 - there is no event for a registration
                    await asyncio.sleep(0.01)
            present.cancel()
            await asyncio.gather(present, return_exceptions=True)

    asyncio.run(scene())


@pytest.mark.parametrize("reason", list(Leave))
def test_a_node_leaves_when_it_is_not_wanted_any_more(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path, reason: Leave
) -> None:
    async def scene() -> Leave:
        head = make_spec(Role.TRAINER)
        async with (
            serving(coordinator, "secret"),
            CoordinatorLink(partial(read_pointer, tmp_path, RUN, "secret"), "head-token") as link,
        ):
            present = asyncio.create_task(be_present(link, Presence(head, "127.0.0.1:1", LinkCap())))
            while not coordinator.view().nodes:  # noqa: ASYNC110 - there is no event for a registration
                await asyncio.sleep(0.01)
            if reason is Leave.STOPPED:
                coordinator.finish()
            elif reason is Leave.LAPSED:
                coordinator.renew(Renewal(run_until_s=time.time() + 0.2))
            else:
                coordinator.access.revoke(head.node_id)
            async with asyncio.timeout(60):
                return await present

    assert asyncio.run(scene()) is reason
