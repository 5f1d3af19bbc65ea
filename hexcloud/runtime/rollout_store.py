"""RegionStore: a node's way to the weights through a store in its region, which the coordinator has filled.

A place is an `https` URL that the store has signed, read by ranges from where an earlier try stopped; or any other URL,
read by this node's own means. What comes is checked as from everywhere else. What was not there, or was another file,
is told to the coordinator, and the next way is taken.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from http import HTTPStatus

import httpx
import structlog

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError, StoreError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import PlaceRequest, PlaceTrouble, WeightsManifest
from hexcloud.runtime.apart import apart
from hexcloud.runtime.rollout_link import CALL_FAILED, CoordinatorLink, RefusedError
from hexcloud.runtime.weight_pace import patience_s

STALL_S = 10.0
"""A store that says nothing for so long has failed."""
AGAIN_S = 0.1
"""Between two questions for a place: the coordinator answers late, but it may be a short-tempered one."""
MAX_REASON = 1000
"""Characters told of why a store failed: what a library says may be long."""

OpenPlace = Callable[[str, int], Iterator[bytes]]
"""Reads what a URL leads to, from an offset on; it blocks. Raises StoreError."""

log = structlog.get_logger()


class RegionStore:
    """The store of one node's region, as a Source of versions and deltas."""

    def __init__(self, link: CoordinatorLink, node_id: NodeId, region: str, open_place: OpenPlace) -> None:
        self._link = link
        self._node_id = node_id
        self._region = region
        self._open_place = open_place
        self._gave = ""
        """Digest of the file whose bytes came from the store last."""

    async def source(self, wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        """Stream a file from an offset on. Raises EngineError when the store has not all of it."""
        self._gave, left = "", wanted.size - offset
        url = await self._place_of(wanted)
        opened = self._by_http if url.startswith(("https://", "http://")) else self._opened
        try:
            async with aclosing(opened(url, offset)) as pieces:
                async for piece in pieces:
                    self._gave, left = wanted.sha256, left - len(piece)
                    yield piece
            if left:
                raise StoreError(f"it has {-left} bytes too many" if left < 0 else f"{left} bytes are missing")
        except (httpx.HTTPError, StoreError) as error:
            reason = str(error) if isinstance(error, StoreError) else type(error).__name__  # its text has the URL
            await self._tell(wanted, reason)
            raise EngineError(f"the store of {self._region}: {reason}") from None

    async def blame(self, wanted: WeightsManifest | WeightsDelta, error: Exception) -> None:
        """Tell the coordinator what was wrong with a file, if it was from the store that it came last."""
        if self._gave == wanted.sha256:
            await self._tell(wanted, str(error))

    async def _tell(self, wanted: WeightsManifest | WeightsDelta, reason: str) -> None:
        self._gave = ""
        trouble = PlaceTrouble(node_id=self._node_id, sha256=wanted.sha256, reason=reason[:MAX_REASON])
        log.warning("weights_store_failed", region=self._region, file=wanted.sha256[:12], reason=reason)
        with suppress(*CALL_FAILED):
            await self._link.tell_trouble(trouble)

    async def _place_of(self, wanted: WeightsManifest | WeightsDelta) -> str:
        """Wait until the coordinator has brought a file to the store. Raises EngineError when it does not."""
        request = PlaceRequest(node_id=self._node_id, sha256=wanted.sha256)
        gives_up_at = time.monotonic() + patience_s(wanted.size)
        try:
            while not (url := (await self._link.place(request)).url):
                if time.monotonic() > gives_up_at:
                    await self._tell(wanted, "the coordinator did not get it there in time")
                    raise EngineError(f"the store of {self._region} did not get {wanted.sha256[:12]} in time")
                await asyncio.sleep(AGAIN_S)
        except RefusedError as error:
            raise EngineError(f"the store of {self._region} has no {wanted.sha256[:12]}: {error}") from error
        return url

    async def _by_http(self, url: str, offset: int) -> AsyncGenerator[bytes, None]:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        async with (
            httpx.AsyncClient(timeout=STALL_S, trust_env=False) as client,
            aclosing(await self._answer(client, client.build_request("GET", url, headers=headers))) as response,
        ):
            if not response.is_success:
                raise StoreError(f"HTTP {response.status_code}")
            # As of the coordinator: a server that ignores the range starts over.
            skip = 0 if response.status_code == HTTPStatus.PARTIAL_CONTENT else offset
            async for piece in response.aiter_raw():  # as they come: chunks of one size would hide how slow it is
                yield piece[skip:]
                skip = max(0, skip - len(piece))

    @staticmethod
    async def _answer(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(STALL_S):  # httpx would wait for each byte of the headers anew
                return await client.send(request, stream=True)
        except TimeoutError:
            raise StoreError(f"it did not answer within {STALL_S:g} s") from None

    async def _opened(self, url: str, offset: int) -> AsyncGenerator[bytes, None]:
        try:
            async with asyncio.timeout(STALL_S):
                pieces = await apart(lambda: self._open_place(url, offset))
            while piece := await self._next(pieces):
                yield piece
        except TimeoutError:
            raise StoreError(f"it said nothing for {STALL_S:g} s") from None

    @staticmethod
    async def _next(pieces: Iterator[bytes]) -> bytes:
        async with asyncio.timeout(STALL_S):
            return await apart(lambda: next(pieces, b""))
