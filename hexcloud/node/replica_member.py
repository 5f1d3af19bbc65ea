"""A machine of a replica that is not its head: it holds its part of the engine as long as its machine is wanted.

Leases, samples and versions are the head's. Where machines are emulated the head serves with the rate of all of them,
and a member does nothing but be there: it is rented, counted, billed and lost as a real one.
"""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import structlog

from hexcloud.node.address import find_place
from hexcloud.node.finder import pointer_finder
from hexcloud.node.identity import Identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.notice import watching
from hexcloud.node.presence import Leave, Presence, be_present
from hexcloud.node.startup import startup
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink

log = structlog.get_logger()


async def stand_by(identity: Identity, directory: Path) -> int:
    """Be there until the run ends, the spend lease lapses, or the machine is told to end; return the exit code."""
    spec = identity.spec
    place = await find_place(spec.notice, os.environ)
    probes = ProbeServer(link_cap(spec))
    await probes.start(place.host)
    presence = Presence(spec, f"{place.near}:{probes.port}", link_cap(spec), partial(startup, directory))
    async with CoordinatorLink(pointer_finder(identity), identity.token, spec.ca_pem) as link:
        present = asyncio.create_task(be_present(link, presence))
        for told in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(told, present.cancel)
        async with watching(spec.notice, partial(setattr, presence, "notice")):
            await asyncio.wait({present})
    await probes.close()
    why = Leave.STOPPED if present.cancelled() else present.result()
    log.info("member_leaves", why=why)
    return 1 if why is Leave.REVOKED else 0
