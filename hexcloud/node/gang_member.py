"""A trainer's node that is not the head: it runs its ranks, answers probes, and leaves when the run does.

Told to leave, by the controller or the cloud, it stays until its ranks have handed on what they hold, or time is up.
"""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

import structlog

from hexcloud.domain.messages import INTERRUPTION, Notice
from hexcloud.node.address import find_place
from hexcloud.node.finder import pointer_finder
from hexcloud.node.identity import Identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.notice import watching
from hexcloud.node.presence import Leave, Presence, be_present
from hexcloud.node.rank_processes import TRAINER, RankProcesses
from hexcloud.node.startup import startup
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink

HAND_ON_S = 8.0
"""For its ranks to hand on their share, of the 10 s that a local machine has after SIGTERM."""
LOST_S = 60.0
"""A machine whose ranks have failed, and that hears of no new world for so long, is of no use and leaves: it bills."""
LOOK_S = 0.2

log = structlog.get_logger()


async def stand_by(identity: Identity, directory: Path, argv: tuple[str, ...] = TRAINER) -> int:
    """Train until the run ends, the spend lease lapses or the machine goes; return the exit code."""
    spec = identity.spec
    place = await find_place(spec.notice, os.environ)
    probes = ProbeServer(link_cap(spec))
    await probes.start(place.host)
    ranks = RankProcesses(spec, place.near, directory, argv=argv)
    presence = Presence(spec, f"{place.near}:{probes.port}", link_cap(spec), partial(startup, directory), ranks.heed)
    told = asyncio.Event()
    for notice in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(notice, told.set)
    async with CoordinatorLink(pointer_finder(identity), identity.token, spec.ca_pem) as link:
        present = asyncio.create_task(be_present(link, presence))
        async with watching(spec.notice, partial(setattr, presence, "notice")):
            await _until_over(present, told, ranks)
            if told.is_set() and not present.done():
                # The coordinator hears of it with the next heartbeat, and lets the others go on without this machine.
                presence.notice = Notice(cause=INTERRUPTION, until_s=time.time() + HAND_ON_S)
                await _until_handed_on(ranks)
        ranks_lost = ranks.are_lost
        present.cancel()
        await asyncio.wait({present})
        reason = Leave.STOPPED if present.cancelled() else present.result()
        await ranks.end(HAND_ON_S if reason is Leave.STOPPED and not told.is_set() else 0.0)
        await probes.close()
    log.info("member_leaves", why=reason, ranks_lost=ranks_lost)
    return 1 if reason is Leave.REVOKED or ranks_lost else 0


async def _until_over(present: "asyncio.Task[Leave]", told: asyncio.Event, ranks: RankProcesses) -> None:
    others = {asyncio.create_task(told.wait()), asyncio.create_task(_until_lost(ranks))}
    await asyncio.wait({present, *others}, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()


async def _until_lost(ranks: RankProcesses) -> None:
    """Wait until ranks have failed for good: after the loss of another machine they are soon started anew."""
    well_s = time.monotonic()
    while time.monotonic() - well_s < LOST_S:
        await asyncio.sleep(LOOK_S)
        well_s = well_s if ranks.are_lost else time.monotonic()


async def _until_handed_on(ranks: RankProcesses) -> None:
    ends_at_s = time.monotonic() + HAND_ON_S
    while ranks.are_running and time.monotonic() < ends_at_s:  # noqa: ASYNC110 - processes end, nobody tells
        await asyncio.sleep(LOOK_S)
