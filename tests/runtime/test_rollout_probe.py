from collections.abc import Awaitable, Callable

import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Heartbeat, Register
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.probe import MAX_PAYLOAD, LinkCap, ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError
from hexcloud.runtime.rollout_probe import probe_and_report

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
NODE = NodeId("run.rollout.0")


async def ordered(coordinator: Coordinator, link: CoordinatorLink, target: str) -> None:
    """Let a peer be there, so that the node is told to measure the way to it."""
    await link.register(Register(node_id=NODE, role=Role.ROLLOUT, slots=16, address="127.0.0.1:1"))
    coordinator.register(Register(node_id=NodeId("run.trainer.0"), role=Role.TRAINER, slots=0, address=target))
    beat = Heartbeat(node_id=NODE, epoch=0, version=-1, running=0, generated_tokens=0)
    assert (await link.heartbeat(beat)).probe == (target,)


def test_a_measured_link_reaches_the_coordinator(tell_rollout: Callable[[Story], None]) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        peer = ProbeServer()
        await peer.start()
        await ordered(coordinator, link, f"127.0.0.1:{peer.port}")
        await probe_and_report(link, NODE, f"127.0.0.1:{peer.port}", LinkCap(latency_s=0.005))
        await peer.close()
        (measured,) = coordinator.view().links
        assert (measured.node_id, measured.target) == (NODE, f"127.0.0.1:{peer.port}")
        assert measured.latency_ms >= 5
        assert measured.gb_per_s > 0

    tell_rollout(story)


def test_a_peer_that_is_gone_is_no_error_and_no_measurement(tell_rollout: Callable[[Story], None]) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        await probe_and_report(link, NODE, "127.0.0.1:1", LinkCap())
        assert coordinator.view().links == ()

    tell_rollout(story)


def test_a_head_whose_only_port_is_the_coordinators_is_measured_over_it(
    tell_rollout: Callable[[Story], None],
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        target = (await link.url()).removeprefix("http://")
        await ordered(coordinator, link, target)
        await probe_and_report(link, NODE, target, LinkCap())
        (measured,) = coordinator.view().links
        assert (measured.node_id, measured.target) == (NODE, target)
        assert 0.0 < measured.latency_ms < 1000.0
        assert measured.gb_per_s > 0.001
        with pytest.raises(RefusedError):
            await link.measure(MAX_PAYLOAD + 1)

    tell_rollout(story)
