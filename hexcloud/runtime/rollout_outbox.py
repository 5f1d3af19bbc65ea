"""Outbox: what a rollout node has made and the coordinator has not acknowledged yet.

Invariant: everything put in is sent until it is acknowledged or refused for good. Both calls are idempotent, so a lost
answer costs a repetition and nothing else. What piles up while one call is out leaves with the next one.
"""

import asyncio
from bisect import bisect_right
from itertools import accumulate
from typing import TypeVar

import structlog

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.lease import LeaseId
from hexcloud.domain.messages import Partial, PartialCommit, Submission
from hexcloud.domain.sample import Sample
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError, RevokedError, UnreachableError

RETRY_S = 0.5
MAX_PER_CALL = 256
"""Samples in one call."""
MAX_TOKENS_PER_CALL = 1_000_000
"""12 MB as arrays, prompts somewhat less: well under what the coordinator reads of one message."""

Made = TypeVar("Made", Sample, Partial)

log = structlog.get_logger()


class Outbox:
    """Delivers samples, and partials of leases that are given back."""

    def __init__(self, node_id: NodeId, link: CoordinatorLink) -> None:
        self._node_id = node_id
        self._link = link
        self._samples: list[Sample] = []
        self._partials: list[Partial] = []
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def add(self, samples: list[Sample], partials: list[Partial]) -> None:
        """Put in finished samples, and what is given back."""
        self._samples += samples
        self._partials += partials
        if self._samples or self._partials:
            self._emptied.clear()
            self._filled.set()

    def keys(self) -> list[tuple[LeaseId, int]]:
        """Return (lease, attempt) of everything not acknowledged."""
        samples = [(sample.lease, sample.attempt) for sample in self._samples]
        return samples + [(partial.lease, partial.attempt) for partial in self._partials]

    async def emptied(self) -> None:
        """Wait until everything is acknowledged or refused."""
        await self._emptied.wait()

    async def deliver(self) -> None:
        """Deliver for ever."""
        while True:
            await self._filled.wait()
            try:
                await self._deliver_some()
            except (UnreachableError, RevokedError) as error:
                log.warning("delivery_failed", reason=str(error), samples=len(self._samples))
                await asyncio.sleep(RETRY_S)

    async def _deliver_some(self) -> None:
        samples, partials = fitting(self._samples), fitting(self._partials)
        if samples:
            await self._send_samples(samples)
            del self._samples[: len(samples)]
        if partials:
            await self._send_partials(partials)
            del self._partials[: len(partials)]
        if not self._samples and not self._partials:
            self._filled.clear()
            self._emptied.set()

    async def _send_samples(self, samples: tuple[Sample, ...]) -> None:
        try:
            await self._link.submit(Submission(node_id=self._node_id, samples=samples))
        except RefusedError as error:
            log.warning("samples_refused", reason=str(error), samples=len(samples))

    async def _send_partials(self, partials: tuple[Partial, ...]) -> None:
        try:
            await self._link.commit(PartialCommit(node_id=self._node_id, partials=partials, released=True))
        except RefusedError as error:
            log.warning("partials_refused", reason=str(error), partials=len(partials))


def fitting(made: list[Made], max_tokens: int = MAX_TOKENS_PER_CALL) -> tuple[Made, ...]:
    """Return the first of them, as many as fit into one call: at least one of any."""
    tokens = tuple(accumulate(map(_tokens, made[:MAX_PER_CALL])))
    return tuple(made[: max(1, bisect_right(tokens, max_tokens))])


def _tokens(made: Sample | Partial) -> int:
    """Return how many tokens travel with it: a finished sample has its prompt with it."""
    return len(made.tokens) + (len(made.prompt_ids) if isinstance(made, Sample) else 0)
