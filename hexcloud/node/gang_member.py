"""A trainer's node that is not the head.

The embedded trainer is one process on the head, so a member stands by: it is there, answers probes, bills, and leaves
when the run does.
"""

import asyncio
import signal

import structlog

from hexcloud.node.identity import Identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.presence import Leave, be_present
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink

log = structlog.get_logger()


async def stand_by(identity: Identity) -> int:
    """Stand by until the run ends, the spend lease lapses or the machine goes; return the exit code."""
    spec = identity.spec
    probes = ProbeServer(link_cap(spec))
    await probes.start(identity.host)
    async with CoordinatorLink(spec.run_id, identity.run_dir, identity.run_secret, identity.token) as link:
        present = asyncio.create_task(be_present(link, spec, f"{identity.host}:{probes.port}", link_cap(spec)))
        for notice in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(notice, present.cancel)
        await asyncio.wait({present})
        await probes.close()
    reason = Leave.STOPPED if present.cancelled() else present.result()
    log.info("member_leaves", why=reason)
    return 1 if reason is Leave.REVOKED else 0
