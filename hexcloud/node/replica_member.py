"""A machine of a replica that is not its head: it runs its part of the engine as long as its machine is wanted.

Leases, samples and versions are the head's. Where machines are emulated the head serves with the rate of all of them,
and a member does nothing but be there: it is rented, counted, billed and lost as a real one.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from hexcloud.domain.errors import ConfigError, EngineError
from hexcloud.domain.generation import EngineKind
from hexcloud.node.address import find_place, near_address
from hexcloud.node.finder import pointer_finder
from hexcloud.node.identity import Identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.notice import watching
from hexcloud.node.presence import Leave, Presence, be_present
from hexcloud.node.sglang_process import SglangProcess
from hexcloud.node.startup import startup
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.replica_line import ReplicaMember
from hexcloud.runtime.rollout_link import CoordinatorLink

log = structlog.get_logger()


class Line(NamedTuple):
    """How the machines of a replica speak to each other."""

    address: tuple[str, int]
    """Of its head."""
    near: str
    """Of this machine, on their network."""
    key: bytes
    """That only they have."""


def line_of(identity: Identity, environment: Mapping[str, str]) -> Line | None:
    """Return a replica's line; None where one machine is a replica, and where machines are emulated.

    Raises ConfigError for an engine that runs on one machine only.
    """
    spec = identity.spec
    if not spec.replica_port:
        return None
    if spec.engine is not EngineKind.SGLANG:
        raise ConfigError(f"engine: {spec.engine} runs on one machine, and this replica takes {spec.gang}")
    key = hashlib.sha256(f"replica {spec.head} {identity.run_secret}".encode()).digest()
    return Line((near_address(0, environment), spec.replica_port), near_address(spec.rank, environment), key)


async def stand_by(identity: Identity, directory: Path) -> int:
    """Be there until the run ends, the spend lease lapses, the head is gone, or the machine is told to end.

    Return the exit code: 1 where the replica ends by it.
    """
    spec = identity.spec
    place = await find_place(spec.notice, os.environ)
    probes = ProbeServer(link_cap(spec))
    await probes.start(place.host)
    presence = Presence(spec, f"{place.near}:{probes.port}", link_cap(spec), partial(startup, directory))
    async with (
        CoordinatorLink(pointer_finder(identity), identity.token, spec.ca_pem) as link,
        _following(identity, directory) as following,
    ):
        present = asyncio.create_task(be_present(link, presence))
        for told in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(told, present.cancel)
        async with watching(spec.notice, partial(setattr, presence, "notice")):
            others = set() if following is None else {following}
            await asyncio.wait({present, *others}, return_when=asyncio.FIRST_COMPLETED)
        is_headless = not present.done()
        present.cancel()
        await asyncio.wait({present})
    await probes.close()
    why = Leave.STOPPED if present.cancelled() else present.result()
    log.info("member_leaves", why=why, is_headless=is_headless)
    return 1 if is_headless or why is Leave.REVOKED else 0


@asynccontextmanager
async def _following(identity: Identity, directory: Path) -> AsyncIterator["asyncio.Task[None] | None"]:
    """Run this machine's part of the engine, as the head says, while the block runs.

    What is yielded ends before that when the head is gone.
    """
    line = line_of(identity, os.environ)
    if line is None:
        yield None
        return
    part = SglangProcess(identity.spec, directory, line.near)
    member = ReplicaMember(line.address, line.key, identity.spec.rank, directory.parent)
    following = asyncio.create_task(asyncio.to_thread(member.follow, part.start_part, part.end_part))
    try:
        yield following
    finally:
        member.leave()
        part.close()
        with suppress(EngineError):  # the head is gone, and it is told
            await following
