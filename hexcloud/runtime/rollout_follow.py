"""WeightFollower: brings the newest version of the weights into the engine.

A download overlaps with generation. Versions that are overtaken while another one comes in are skipped.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.rollout_engine import EngineDeadError, EngineKeeper
from hexcloud.runtime.rollout_link import RefusedError, RevokedError, UnreachableError
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.rollout_wire import Wire

RETRY_S = 0.3
MAX_RETRY_S = 2.0
"""Between tries of a version that failed DAMAGED_AFTER times: only a rewrite or the next version can help."""
DAMAGED_AFTER = 3

log = structlog.get_logger()


def identity(manifest: WeightsManifest | None) -> tuple[int, int]:
    """Order versions: a recovery's epoch outranks every version of the one before."""
    return (-1, -1) if manifest is None else (manifest.epoch, manifest.version)


class WeightFollower:
    """Remembers the newest version heard of and loads it. Downloads go before probes on the `wire`."""

    def __init__(
        self,
        way: WeightWay,
        folder: WeightFolder,
        keeper: EngineKeeper,
        wire: Wire,
    ) -> None:
        self._way = way
        self._folder = folder
        self._keeper = keeper
        self._wire = wire
        self._wanted: WeightsManifest | None = None
        self._heard = asyncio.Event()
        self._failed: WeightsManifest | None = None
        self._failures = 0

    def want(self, manifest: WeightsManifest | None) -> None:
        """Hear of a version; older ones than the newest heard of are ignored."""
        if identity(manifest) > identity(self._wanted):
            self._wanted = manifest
            self._heard.set()

    async def follow(self, on_load: Callable[[], None]) -> None:
        """Load versions for ever; say so after each. Raises EngineDeadError."""
        while True:
            await self._heard.wait()
            self._heard.clear()
            if self._wanted is None:
                continue
            try:
                await self._load(self._wanted)
            except EngineDeadError:
                raise
            except (EngineError, RefusedError, RevokedError, OSError) as error:  # a full disk may have room again
                await self._pause(self._wanted, error)
                continue
            on_load()

    async def _pause(self, manifest: WeightsManifest, error: Exception) -> None:
        """Wait before the next try: longer when a version fails again and again, but never past a newer one."""
        if not isinstance(error, (UnreachableError, RevokedError)):  # those say nothing about the version
            self._failures = self._failures + 1 if self._failed == manifest else 1
            self._failed = manifest
        is_damaged = self._failed == manifest and self._failures >= DAMAGED_AFTER
        if self._failures == DAMAGED_AFTER or not is_damaged:
            event = "weights_damaged" if is_damaged and not isinstance(error, OSError) else "weights_not_loaded"
            log.warning(event, version=manifest.version, reason=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_RETRY_S if is_damaged else RETRY_S):
                await self._heard.wait()
        self._heard.set()

    async def _load(self, manifest: WeightsManifest) -> None:
        async with self._wire.for_weights():
            # What failed may have failed for its way: a neighbour's bytes, a delta.
            is_direct = self._failed == manifest
            directory = await self._way.bring(manifest, self._keeper.loaded, is_direct)
        await self._keeper.load(manifest, directory)
        self._folder.prune(manifest)
        log.info("weights_loaded", epoch=manifest.epoch, version=manifest.version)
