"""A rollout node: the agent, the probe server, and the engine child that never outlives them."""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.messages import RelayDoor
from hexcloud.domain.plan import Role
from hexcloud.domain.trust import is_loopback
from hexcloud.node.address import Place, find_place, near_address
from hexcloud.node.engine_process import EngineProcess
from hexcloud.node.finder import pointer_finder
from hexcloud.node.identity import Identity, log_as_json, read_identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.notice import watching
from hexcloud.node.replica_member import line_of, stand_by
from hexcloud.node.sglang_process import SglangProcess
from hexcloud.node.startup import startup
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.replica_line import ReplicaHead
from hexcloud.runtime.rollout import Ending, Equipment, RolloutAgent
from hexcloud.runtime.rollout_engine import EngineKeeper
from hexcloud.runtime.rollout_link import CoordinatorLink
from hexcloud.runtime.rollout_store import RegionStore
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.weight_relay import WeightRelay

CONTROL_THREADS = 4
"""Beside one per batch: weight updates, aborts and health checks must not queue behind generations."""

LOOK_S = 1.0

ENGINES: dict[EngineKind, type[EngineProcess] | type[SglangProcess]] = {
    EngineKind.EMBEDDED: EngineProcess,
    EngineKind.SGLANG: SglangProcess,
}

log = structlog.get_logger()


def main() -> int:
    """Run the rollout node of the current directory; return its exit code."""
    directory = Path.cwd()
    identity = read_identity(directory, Role.ROLLOUT, os.environ)
    log_as_json(identity)
    if identity.spec.rank > 0:
        return asyncio.run(stand_by(identity, directory))
    head = _head(identity)
    engine = _engine(identity, directory, head)
    engine.warm_up()
    try:
        ending = asyncio.run(_run(identity, engine, directory, head))
    finally:
        engine.close()
    log.info("node_ended", why=ending)
    return ending.exit_code


def _head(identity: Identity) -> ReplicaHead | None:
    """Open the line to a replica's other machines, which call from now on."""
    line = line_of(identity, os.environ)
    return None if line is None else ReplicaHead(line.address, line.key, identity.spec.gang - 1)


def _engine(identity: Identity, directory: Path, head: ReplicaHead | None) -> EngineProcess | SglangProcess:
    if head is None:
        return ENGINES[identity.spec.engine](identity.spec, directory)
    return SglangProcess(identity.spec, directory, near_address(0, os.environ), head)


async def _run(
    identity: Identity, engine: EngineProcess | SglangProcess, directory: Path, head: ReplicaHead | None = None
) -> Ending:
    spec = identity.spec
    cap = link_cap(spec)
    place = await find_place(spec.notice, os.environ)
    # A pace of its own: peers measure the link, not what our downloads leave of it.
    probes = ProbeServer(link_cap(spec))
    await probes.start(place.host)
    async with (
        CoordinatorLink(pointer_finder(identity), identity.token, spec.ca_pem) as link,
        _relaying(spec, place) as (relay, door),
    ):
        agent = RolloutAgent(
            spec,
            Equipment(
                link=link,
                keeper=EngineKeeper(engine.start, spec.slots + CONTROL_THREADS),
                folder=WeightFolder(directory / "weights", cap),
                cap=cap,
                address=f"{place.near}:{probes.port}",
                relay=relay,
                door=door,
                store=RegionStore(link, spec.node_id, spec.region, _open_place),
                startup=partial(startup, directory),
            ),
        )
        loop = asyncio.get_running_loop()
        for notice in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(notice, agent.interrupt)
        try:
            async with watching(spec.notice, agent.hear), _ending_with_its_members(head, agent):
                return await agent.run()
        finally:
            # Calls that still block on the engine end with it; the loop waits for their threads.
            engine.close()
            await probes.close()


@asynccontextmanager
async def _ending_with_its_members(head: ReplicaHead | None, agent: RolloutAgent) -> AsyncIterator[None]:
    """End the agent when a machine of its replica is gone: without it there is no engine, and the others bill."""

    async def watch(head: ReplicaHead) -> None:
        while (rank := head.lost) is None:  # noqa: ASYNC110 - it is a thread that notices
            await asyncio.sleep(LOOK_S)
        agent.give_up(f"rank {rank} of the replica is gone")

    watcher = None if head is None else asyncio.create_task(watch(head))
    try:
        yield
    finally:
        if watcher is not None:
            watcher.cancel()


def _open_place(url: str, offset: int) -> Iterator[bytes]:
    from hexcloud.adapters.weight_store import read_place  # here: only a node with such a store needs it

    return read_place(url, offset)


@asynccontextmanager
async def _relaying(spec: NodeSpec, place: Place) -> AsyncIterator[tuple[WeightRelay | None, RelayDoor | None]]:
    """Listen for neighbours that want weights, while the block runs; where the region is unknown there are none.

    It sends as fast as it can: an emulated link is the receiver's.
    """
    if not spec.region:
        yield None, None
        return
    tls, certificate = None, ""
    if not is_loopback(place.host):
        from hexcloud.adapters.certificates import RunAuthority, server_context  # here: only rented machines need it

        own = RunAuthority(secrets.token_bytes(32), time.time())
        tls = server_context(own.certificate(spec.node_id), own.private_key(spec.node_id))
        certificate = own.ca_pem
    relay = WeightRelay("")
    await relay.start(place.host, tls=tls)
    try:
        yield relay, RelayDoor(address=f"{place.near}:{relay.port}", certificate=certificate)
    finally:
        await relay.close()
