"""Wire: one thing at a time on a node's link, so that a probe measures all of it; weights always go first."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager


class Wire:
    """Lets weights through at once: a probe under way gives way, and the coordinator orders it again later.

    Without that a peer that answers slowly holds up the weights, and a node whose weights are old gets no work.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._probe: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def for_weights(self) -> AsyncIterator[None]:
        """Hold the wire for a download."""
        if self._probe is not None:
            self._probe.cancel()
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()

    async def probe(self, errand: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a probe once no weights want the wire, and end it when they do."""
        while True:
            async with self._lock:
                if not self._waiting:
                    await self._run(errand())
                    return
            await asyncio.sleep(0)  # the lock is fair: the download that waits has it now

    async def _run(self, errand: Coroutine[None, None, None]) -> None:
        self._probe = asyncio.create_task(errand)
        try:
            await asyncio.wait({self._probe})
            if not self._probe.cancelled():
                self._probe.result()
        finally:
            self._probe.cancel()
            self._probe = None
