"""Presence: a node that generates nothing, among the others: the trainer's, and a replica's but its head.

It registers, heartbeats and measures links as a rollout node does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.messages import Heartbeat, Notice, Orders, Register, Startup
from hexcloud.domain.world import World
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError, RevokedError, UnreachableError
from hexcloud.runtime.rollout_probe import probe_and_report

log = structlog.get_logger()


class Leave(StrEnum):
    """Why a node need not be present any longer."""

    STOPPED = "stopped"
    """The run is over, or does without this node."""
    LAPSED = "lapsed"
    """The spend lease ran out."""
    REVOKED = "revoked"
    """The coordinator has given this node up."""


async def _heed_nothing(_world: World | None) -> None:
    """The head's trainer process looks itself."""


@dataclass
class Presence:
    """What such a node says of itself. `notice` may change meanwhile."""

    spec: NodeSpec
    address: str
    """`host:port` where this node answers probes."""
    cap: LinkCap
    startup: Callable[[], Startup] = Startup
    heed: Callable[[World | None], Awaitable[None]] = _heed_nothing
    """Is told which ranks the trainer shall have."""
    notice: Notice | None = None
    """The cloud's word about this machine."""

    def register(self) -> Register:
        """Say that this node is there."""
        spec = self.spec
        return Register(node_id=spec.node_id, role=spec.role, slots=0, address=self.address, startup=self.startup())

    def heartbeat(self, orders: Orders) -> Heartbeat:
        """The trainer works with the newest weights by definition, and generates nothing."""
        return Heartbeat(
            node_id=self.spec.node_id,
            epoch=orders.epoch,
            version=orders.latest.version if orders.latest else -1,
            running=0,
            generated_tokens=0,
            notice=self.notice,
        )


async def be_present(link: CoordinatorLink, presence: Presence) -> Leave:
    """Stay in touch until there is a reason to leave."""
    spec = presence.spec
    run_until_s = time.time() + spec.spend_lease_s
    orders: Orders | None = None
    while time.time() < run_until_s:
        try:
            if orders is None:
                orders = await link.register(presence.register())
            else:
                orders = await link.heartbeat(presence.heartbeat(orders))
            run_until_s = orders.run_until_s
            await presence.heed(orders.world)
            if orders.stop or orders.drain:
                return Leave.STOPPED
            for target in orders.probe:
                await probe_and_report(link, spec.node_id, target, presence.cap)
        except RevokedError:
            if orders is not None:
                return Leave.REVOKED
        except (UnreachableError, RefusedError) as error:
            log.warning("not_in_touch", reason=str(error))
            orders = None
        await asyncio.sleep(spec.heartbeat_s)
    return Leave.LAPSED
