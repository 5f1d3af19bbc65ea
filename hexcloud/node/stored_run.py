"""StoredRun: the head's side of the run's store, when its nodes have no folder in common."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from hexcloud.domain.errors import EngineError, StoreError
from hexcloud.domain.messages import Pointer
from hexcloud.node.identity import Identity
from hexcloud.node.mirror import Belongings, Mirror
from hexcloud.node.mirror_thread import MirrorThread, Tidings
from hexcloud.node.restore import Claim, restore
from hexcloud.ports import Objects
from hexcloud.runtime.coordinator import Coordinator

CLAIM_S = 300.0
"""A head that cannot read the store for so long gives up: without it nobody knows where the run stands."""
AGAIN_S = 2.0

log = structlog.get_logger()


class StoredRun:
    """A claimed run. Everything here is called in the head's event loop."""

    def __init__(self, objects: Objects, identity: Identity, claim: Claim) -> None:
        has = Belongings(identity.run_dir, Path(identity.spec.output), identity.marker_secret, claim)
        self._mirror = Mirror(objects, has)
        self._thread: MirrorThread | None = None

    def begin(self, coordinator: Coordinator, lost: Callable[[], None]) -> None:
        """Mirror from now on; the coordinator is told how far. `lost` is called when another head has the run."""
        loop = asyncio.get_running_loop()
        tell = loop.call_soon_threadsafe
        coordinator.note_store(self._mirror.stored_version, "")
        self._thread = MirrorThread(
            self._mirror,
            Tidings(
                stored=lambda version, trouble: _quietly(tell, coordinator.note_store, version, trouble),
                delivered=lambda: _quietly(tell, coordinator.deliver),
                superseded=lambda: _quietly(tell, lost),
            ),
        )
        self._thread.start()

    def point(self, pointer: Pointer) -> None:
        """Store the pointer, so that others find this head."""
        self._mirror.point(pointer)

    async def deliver(self, coordinator: Coordinator) -> None:
        """Store the result that the trainer has written, however long the store is away."""
        self._mirror.is_over = True
        while not coordinator.is_done:
            await self.catch_up(AGAIN_S)
            await asyncio.sleep(0)  # what the thread has told is heard now

    def close(self) -> None:
        """Store nothing more."""
        if self._thread is not None:
            self._thread.stop()

    async def catch_up(self, within_s: float) -> bool:
        """Wait until all that there is now is in the store; False when it takes too long."""
        assert self._thread is not None  # it was begun
        return await asyncio.to_thread(self._thread.catch_up, within_s)


async def claim_run(identity: Identity) -> StoredRun | None:
    """Claim the run and bring its newest checkpoint; None for a run whose nodes share a folder.

    Raises ConfigError for a store that is none, EngineError when it stays away.
    """
    spec = identity.spec
    if not spec.store:
        return None
    from hexcloud.adapters.objects import Bucket  # here: a run of a common folder needs no object store

    objects = Bucket(spec.store)
    gives_up_at = asyncio.get_running_loop().time() + CLAIM_S
    while True:
        try:
            claim = await asyncio.to_thread(restore, objects, identity.run_dir, identity.marker_secret, spec.node_id)
            return StoredRun(objects, identity, claim)
        except StoreError as error:
            log.warning("store_away", reason=str(error))
            if asyncio.get_running_loop().time() > gives_up_at:
                raise EngineError(f"the run's store stays away: {error}") from error
        await asyncio.sleep(AGAIN_S)


def _quietly(tell: Callable[..., object], *what: object) -> None:
    """Tell the loop something, if it is still there to listen."""
    with suppress(RuntimeError):
        tell(*what)
