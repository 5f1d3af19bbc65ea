"""CoordinatorLink: a node's line to the run's coordinator, wherever the signed pointer says that it is.

Every failed call forgets the address, so the next one reads the pointer again: after a loss of the trainer the
coordinator comes back somewhere else, with a higher epoch.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

import httpx

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError, HexcloudError
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.messages import (
    Heartbeat,
    LeaseGrant,
    LeaseRenewal,
    LeaseRequest,
    LinkReport,
    Orders,
    PartialCommit,
    Place,
    PlaceRequest,
    PlaceTrouble,
    Pointer,
    Register,
    Submission,
    WeightsManifest,
    WeightsWays,
)
from hexcloud.domain.raw import MAX_BODY, RAW, pack_commit, pack_submission
from hexcloud.domain.trust import COORDINATOR_NAME, require_private, trusted_by
from hexcloud.runtime.probe import PINGS, LinkMeasure

CALL_S = 10.0
"""A call without answer for this long has failed; none of ours waits on purpose."""
DOWNLOAD_CHUNK = 64 * 1024

BY_NAME = {"sni_hostname": COORDINATOR_NAME}
"""Ask for the name in the run's certificate, and check it, in the place of an address that nobody could foresee."""

Answer = TypeVar("Answer", bound=Frozen)
FindPointer = Callable[[], Pointer]
"""Reads the pointer where it is kept, verified; it may block. Raises EngineError."""


class UnreachableError(EngineError):
    """The coordinator did not answer, or not sensibly: read the pointer again and retry."""


class RevokedError(HexcloudError):
    """The coordinator knows this node's token no longer, or not yet."""


class RefusedError(HexcloudError):
    """The coordinator understood the call and will never accept it: do not retry."""


CALL_FAILED = (UnreachableError, RevokedError, RefusedError)
"""All that a call can raise."""


class CoordinatorLink:
    """Typed calls to the coordinator. Each raises UnreachableError, RevokedError or RefusedError."""

    def __init__(self, find: FindPointer, token: str, ca_pem: str = "") -> None:
        """`ca_pem` is the run's authority: without it only a coordinator on this machine is spoken to."""
        self._find = find
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(headers=headers, timeout=CALL_S, trust_env=False, verify=trusted_by(ca_pem))
        self._pointer: Pointer | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def url(self) -> str:
        """Return the coordinator's address, from the pointer when none is known to work."""
        if self._pointer is None:
            try:
                self._pointer = await asyncio.to_thread(self._find)
                require_private(self._pointer.url)
            except EngineError as error:
                self._pointer = None
                raise UnreachableError(str(error)) from error
        return self._pointer.url

    async def register(self, message: Register) -> Orders:
        """Say that this node is there."""
        return await self._post("/register", message, Orders)

    async def heartbeat(self, message: Heartbeat) -> Orders:
        """Say what this node is doing; hear what it must do."""
        return await self._post("/heartbeat", message, Orders)

    async def leases(self, message: LeaseRequest) -> LeaseGrant:
        """Ask for work."""
        return await self._post("/leases", message, LeaseGrant)

    async def submit(self, message: Submission) -> None:
        """Deliver finished samples."""
        await self._call("POST", "/samples", pack_submission(message))

    async def commit(self, message: PartialCommit) -> None:
        """Renew leases and park tokens, or give leases back. Refused too when tokens before them are not known."""
        await self._call("POST", "/partials", pack_commit(message))

    async def renew(self, message: LeaseRenewal) -> None:
        """Renew leases."""
        await self._call("POST", "/leases/renew", message)

    async def report_link(self, message: LinkReport) -> None:
        """Report a measured link."""
        await self._call("POST", "/links", message)

    async def leads_to(self, address: str) -> bool:
        """Is this `host:port` the coordinator's own?"""
        return urlsplit(await self.url()).netloc == address

    async def measure(self, size: int) -> LinkMeasure:
        """Measure the link to the coordinator by `size` bytes of its own port: the only one open on a rented head."""
        url = await self.url()
        counted, began_at_s = 0, 0.0
        try:
            latency_s = min([await self._ping(url) for _ in range(PINGS)])
            async with self._client.stream("GET", f"{url}/probe/{size}", extensions=BY_NAME) as response:
                self._check(response)
                async for piece in response.aiter_bytes(DOWNLOAD_CHUNK):
                    # What the network had piled up with the first piece says nothing about its pace.
                    began_at_s, counted = (began_at_s or time.monotonic()), counted + len(piece) * bool(began_at_s)
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        seconds = max(1e-9, time.monotonic() - began_at_s)
        return LinkMeasure(gb_per_s=counted / seconds / 1e9, latency_ms=latency_s * 1e3)

    async def _ping(self, url: str) -> float:
        began_at_s = time.monotonic()
        self._check(await self._client.get(f"{url}/health", extensions=BY_NAME))
        return (time.monotonic() - began_at_s) / 2

    async def ways(self, manifest: WeightsManifest) -> WeightsWays:
        """Ask how to get to a version."""
        response = await self._call("GET", f"/ways/{manifest.epoch}/{manifest.version}")
        return self._parsed(response, WeightsWays)

    async def place(self, message: PlaceRequest) -> Place:
        """Ask where a file is in the region's store."""
        return await self._post("/places", message, Place)

    async def tell_trouble(self, message: PlaceTrouble) -> None:
        """Say that a file was not there, or another one."""
        await self._call("POST", "/places/trouble", message)

    async def weights(self, wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        """Stream the file of a version or of a delta from a byte offset on."""
        if isinstance(wanted, WeightsDelta):
            path = f"/deltas/{wanted.result.epoch}/{wanted.base.version}/{wanted.result.version}"
        else:
            path = f"/weights/{wanted.epoch}/{wanted.version}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            url = await self.url() + path
            async with self._client.stream("GET", url, headers=headers, extensions=BY_NAME) as response:
                self._check(response)
                # A server that ignores the range starts over; what we hold already is skipped.
                skip = 0 if response.status_code == HTTPStatus.PARTIAL_CONTENT else offset
                async for piece in response.aiter_bytes(DOWNLOAD_CHUNK):
                    yield piece[skip:]
                    skip = max(0, skip - len(piece))
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    async def _post(self, path: str, message: Frozen, answer: type[Answer]) -> Answer:
        return self._parsed(await self._call("POST", path, message), answer)

    def _parsed(self, response: httpx.Response, answer: type[Answer]) -> Answer:
        try:
            return answer.model_validate_json(response.content)
        except ValueError as error:
            raise self._lost(error) from error

    async def _call(self, method: str, path: str, message: Frozen | bytes | None = None) -> httpx.Response:
        content = message.model_dump_json().encode() if isinstance(message, Frozen) else message
        if content is not None and len(content) > MAX_BODY:
            # The coordinator would not read it to its end: its answer can be lost with the line, as if it were gone.
            raise RefusedError(f"{method} {path}: {HTTPStatus.REQUEST_ENTITY_TOO_LARGE}, {len(content)} bytes")
        try:
            response = await self._client.request(
                method,
                await self.url() + path,
                content=content,
                headers={"Content-Type": RAW if isinstance(message, bytes) else "application/json"},
                extensions=BY_NAME,
            )
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        self._check(response)
        return response

    def _check(self, response: httpx.Response) -> None:
        """Raise the error of a status that is not a success."""
        if response.is_success:
            return
        where = f"{response.request.method} {response.request.url.path}: {response.status_code}"
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise RevokedError(where)
        if response.is_client_error:
            raise RefusedError(where)
        raise self._lost(RuntimeError(where))

    def _lost(self, error: Exception) -> UnreachableError:
        self._pointer = None
        return UnreachableError(f"no sensible answer from the coordinator: {error!r}")
