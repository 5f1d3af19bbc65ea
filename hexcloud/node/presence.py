"""Presence: a trainer's node among the others. It registers, heartbeats and measures links as a rollout node does."""

import asyncio
import time
from enum import StrEnum

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.messages import Heartbeat, Orders, Register
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


async def be_present(link: CoordinatorLink, spec: NodeSpec, address: str, cap: LinkCap) -> Leave:
    """Stay in touch until there is a reason to leave. `address` is where this node answers probes."""
    run_until_s = time.time() + spec.spend_lease_s
    register = Register(node_id=spec.node_id, role=spec.role, slots=0, address=address)
    orders: Orders | None = None
    while time.time() < run_until_s:
        try:
            if orders is None:
                orders = await link.register(register)
            else:
                orders = await link.heartbeat(_heartbeat(spec, orders))
            run_until_s = orders.run_until_s
            if orders.stop or orders.drain:
                return Leave.STOPPED
            for target in orders.probe:
                await probe_and_report(link, spec.node_id, target, cap)
        except RevokedError:
            if orders is not None:
                return Leave.REVOKED
        except (UnreachableError, RefusedError) as error:
            log.warning("not_in_touch", reason=str(error))
            orders = None
        await asyncio.sleep(spec.heartbeat_s)
    return Leave.LAPSED


def _heartbeat(spec: NodeSpec, orders: Orders) -> Heartbeat:
    """The trainer works with the newest weights by definition, and generates nothing."""
    return Heartbeat(
        node_id=spec.node_id,
        epoch=orders.epoch,
        version=orders.latest.version if orders.latest else -1,
        running=0,
        generated_tokens=0,
    )
