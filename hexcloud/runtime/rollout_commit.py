"""Commits: what of a batch's leases the coordinator has already, so that each token is committed once.

Invariant: what a commit leaves out was acknowledged under the same attempt, or came with the lease. After a call that
failed nothing is taken for acknowledged any more: the next commit is of the whole, whatever the coordinator knows.
"""

from collections.abc import Iterable

import structlog

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.lease import Lease
from hexcloud.domain.messages import Partial, PartialCommit
from hexcloud.runtime.rollout_bench import Key, key
from hexcloud.runtime.rollout_link import CALL_FAILED, CoordinatorLink
from hexcloud.runtime.rollout_outbox import fitting
from hexcloud.runtime.rollout_work import partial

log = structlog.get_logger()


class Commits:
    """The commits of one batch, from its grant on; one at a time."""

    def __init__(self, node_id: NodeId, link: CoordinatorLink, leases: Iterable[Lease]) -> None:
        self._node_id = node_id
        self._link = link
        self._known: dict[Key, int] = {key(lease): len(lease.prefix) for lease in leases}
        """How many tokens of each the coordinator has."""

    async def send(self, leases: Iterable[Lease]) -> None:
        """Commit what leases have grown by: whoever goes on if this machine is lost goes on from there."""
        left = [partial(lease, start=self._known[key(lease)]) for lease in leases]
        while left:
            some = fitting(left)
            del left[: len(some)]
            await self._send(some)

    async def _send(self, some: tuple[Partial, ...]) -> None:
        is_known = True
        try:
            await self._link.commit(PartialCommit(node_id=self._node_id, partials=some))
        except CALL_FAILED as error:
            log.warning("not_committed", samples=len(some), reason=str(error))
            is_known = False
        for one in some:
            self._known[(one.lease, one.attempt)] = one.start + len(one.tokens) if is_known else 0
