"""StoredCopies: published weights in stores of regions: each file is copied to one once, when a node there asks for it.

The node is told a place, signed where the store can sign, so it needs no keys and can write nothing. A copy is named by
its digest and goes when the coordinator serves the file no more. A store that fails, or of which a node says so, is
named and left alone for a while: nodes then take weights as if it were not there.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from hexcloud.domain.errors import HexcloudError, StoreError
from hexcloud.domain.messages import PlaceTrouble
from hexcloud.runtime.apart import apart

SIGNED_S = 3600
"""How long a place is good for: a download that breaks off later asks for another one."""
PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""How long a store that failed is not tried again: twice as long each time that it fails at once, as each try may send
a whole file that the cloud bills."""
CLOSE_S = 10.0
"""For the removal of all copies when the run ends; what stays then is named in the log."""
FOLDER = "weights"

log = structlog.get_logger()


class WeightStore(Protocol):
    """Objects in a region. Every call blocks and may raise StoreError."""

    def upload(self, name: str, path: str) -> None:
        """Write a file's content as an object."""
        ...

    def place(self, name: str, for_s: int) -> str:
        """Return a URL by which the object can be read for so long."""
        ...

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names below `prefix/`."""
        ...

    def delete(self, names: tuple[str, ...]) -> None:
        """Remove objects; absent ones are fine."""
        ...


class NoCopyError(HexcloudError):
    """The file is not to be had in this region's store: take another way."""


class _Shelf:
    """One region's store, and what lies there."""

    def __init__(self, store: WeightStore) -> None:
        self.store = store
        self.copies: dict[str, asyncio.Task[str]] = {}
        """Digest -> why the copy failed (empty: it lies there); not done: it is under way."""
        self.stale: set[str] = set()
        """Digests of copies that are to be removed."""
        self.paused_until_s = float("-inf")
        self.pause_s = 0.0
        """The last one's length."""

    def pause(self, now_s: float) -> None:
        """Leave the store alone for a while; that many say so during a pause makes it no longer."""
        if now_s < self.paused_until_s:
            return
        is_at_once = now_s < self.paused_until_s + self.pause_s
        self.pause_s = min(2.0 * self.pause_s, LONGEST_PAUSE_S) if is_at_once else PAUSE_S
        self.paused_until_s = now_s + self.pause_s


class StoredCopies:
    """All regions' stores, called in the coordinator's event loop. `clock` gives seconds."""

    def __init__(self, stores: Mapping[str, WeightStore], clock: Callable[[], float] = time.monotonic) -> None:
        """`stores` by region, `cloud/region`."""
        self._shelves = {region: _Shelf(store) for region, store in stores.items()}
        self._clock = clock
        self._errands: set[asyncio.Task[None]] = set()
        self.sent_bytes: Counter[str] = Counter()
        """Sent to each region's store so far, failed tries included: clouds bill them."""
        self.trouble: dict[str, str] = {}
        """Region -> why its store was of no use when it was needed last."""

    def is_open(self, region: str) -> bool:
        """Is there a store in a region that may be asked now?"""
        shelf = self._shelves.get(region)
        return shelf is not None and self._clock() >= shelf.paused_until_s

    async def place(self, region: str, sha256: str, file: Path, wait_s: float) -> str:
        """Return where a file lies in a region's store; empty when it is still under way after `wait_s`.

        Raises NoCopyError.
        """
        if not self.is_open(region):
            raise NoCopyError(f"no store of {region} can be asked now")
        shelf = self._shelves[region]
        if sha256 not in shelf.copies:
            shelf.copies[sha256] = asyncio.create_task(self._copy(region, sha256, file))
        copy = shelf.copies[sha256]
        await asyncio.wait({copy}, timeout=wait_s)
        if not copy.done():
            return ""
        if reason := copy.result():
            raise NoCopyError(reason)
        try:
            return await apart(lambda: shelf.store.place(_name(sha256), SIGNED_S))
        except StoreError as error:
            self._leave_alone(region, sha256, str(error))
            raise NoCopyError(str(error)) from error

    def hear(self, region: str, trouble: PlaceTrouble) -> None:
        """Hear from a node of a region that what it was told of was not there, or not what it should be.

        Nobody was told of a file that was not copied there: nothing of that name is removed.
        """
        if region in self._shelves and trouble.sha256 in self._shelves[region].copies:
            self._leave_alone(region, trouble.sha256, f"{trouble.node_id}: {trouble.reason}")

    def keep_only(self, digests: Set[str]) -> None:
        """Remove the copies of all other files, in the background."""
        for region, shelf in self._shelves.items():
            gone = {digest for digest, copy in shelf.copies.items() if copy.done() and digest not in digests}
            for digest in gone:
                del shelf.copies[digest]
            shelf.stale = (shelf.stale | gone) - shelf.copies.keys()
            if shelf.stale:
                self._run(self._remove(region, tuple(sorted(shelf.stale))))

    def begin(self) -> None:
        """Remove what an earlier head of the run has left, in the background."""
        for region, shelf in self._shelves.items():
            self._run(self._clear(region, shelf))

    async def close(self) -> None:
        """Remove all copies."""
        self.keep_only(frozenset())
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*self._errands)
        for region, shelf in self._shelves.items():
            if left := len(shelf.stale) + len(shelf.copies):
                log.warning("weights_left_in_store", region=region, objects=left)

    async def _copy(self, region: str, sha256: str, file: Path) -> str:
        """Copy a file; return why that failed."""
        shelf, begun_s = self._shelves[region], self._clock()
        try:
            size = await apart(lambda: file.stat().st_size)
            await apart(lambda: shelf.store.place(_name(sha256), SIGNED_S))  # what cannot be read need not be sent
            self.sent_bytes[region] += size
            await apart(lambda: shelf.store.upload(_name(sha256), str(file)))
        except (StoreError, OSError) as error:
            self._leave_alone(region, sha256, str(error))
            return str(error)
        self.trouble.pop(region, None)
        log.info("weights_stored", region=region, file=sha256[:12], bytes=size, seconds=self._clock() - begun_s)
        return ""

    def _leave_alone(self, region: str, sha256: str, reason: str) -> None:
        """Note that a store failed. What it is said to have of the file is not believed, and written anew one day."""
        shelf = self._shelves[region]
        shelf.pause(self._clock())
        # One that is on its way is not what failed, unless it says so itself: sent twice at once, it costs twice.
        copy = shelf.copies.get(sha256)
        if copy is not None and (copy.done() or copy is asyncio.current_task()):
            del shelf.copies[sha256]
        shelf.stale.add(sha256)
        self.trouble[region] = reason
        log.warning("weights_store_failed", region=region, file=sha256[:12], reason=reason, pause_s=shelf.pause_s)

    async def _clear(self, region: str, shelf: _Shelf) -> None:
        try:
            found = await apart(lambda: shelf.store.list(FOLDER))
        except StoreError as error:
            log.warning("weights_not_removed", region=region, reason=str(error))
            return
        left = {name.rpartition("/")[2] for name in found} - shelf.copies.keys()
        shelf.stale |= left
        if left:
            await self._remove(region, tuple(sorted(left)))

    async def _remove(self, region: str, digests: tuple[str, ...]) -> None:
        """Remove copies; those that cannot be removed now are tried again at the next version."""
        shelf = self._shelves[region]
        doomed = tuple(digest for digest in digests if digest not in shelf.copies)
        try:
            await apart(lambda: shelf.store.delete(tuple(map(_name, doomed))))
        except StoreError as error:
            log.warning("weights_not_removed", region=region, reason=str(error))
            return
        shelf.stale -= set(doomed)

    def _run(self, errand: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


def _name(sha256: str) -> str:
    return f"{FOLDER}/{sha256}"
