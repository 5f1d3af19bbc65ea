"""WeightRelay: a node passes versions of the weights on to its neighbours, while they are still arriving.

One copy crosses to a region; inside it every node has its copy from another one. What is passed on may not be verified
yet: every receiver checks it against the coordinator's manifest before use, so a bad neighbour costs time, not a run.
The token is the coordinator's word that both are of the run. Beyond one machine the bytes travel in TLS, and the relay
proves itself by a certificate that the coordinator was told and tells.

    relay -> nonce (16 bytes)
    peer  -> HELLO, sha256 of the file (32), offset (u64), HMAC-SHA256 of nonce, digest and offset under the token
    relay -> size (u64; 0 when it will not have that file), then the bytes from the offset on, as they come
"""

import asyncio
import hashlib
import hmac
import os
import secrets
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.domain.trust import COORDINATOR_NAME, is_loopback, trusted_by
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, Source
from hexcloud.runtime.weight_pace import OnSlow, paced

HELLO = b"HXRELAY1"
NONCE = 16
CHUNK = 256 << 10
STALL_S = 30.0
"""Both sides give up when nothing moved for so long; the receiver goes on elsewhere from where it was."""
PEER_STALL_S = 5.0
"""A receiver that has another source waits no longer than this for a neighbour."""
HEAR_S = 1.5
"""A neighbour that has not heard yet of what it is asked for hears of it within a heartbeat."""
POLL_S = 0.01
"""How often a file that is still arriving is looked at."""
MAX_OPEN = 64
"""Neighbours at once."""
MAX_OFFERED = 16
"""Files: the newest versions and the deltas to them."""

_ASK = struct.Struct("!8s32sQ32s")
_SIZE = struct.Struct("!Q")

log = structlog.get_logger()


def relay_source(address: str, token: str, certificate: str = "", stall_s: float = PEER_STALL_S) -> Source:
    """Return a source of versions and deltas at the relay at `host:port`, as a WeightFolder wants one.

    It raises EngineError when the relay does not have the file, stalls, or the connection breaks. `certificate` (PEM)
    is the relay's; without it, only one on this machine is asked.
    """

    async def source(wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        async with _connection(address, certificate, stall_s) as (reader, writer):
            await asyncio.wait_for(_ask(reader, writer, wanted, offset, token), HEAR_S + stall_s)
            left = wanted.size - offset
            while left:
                piece = await asyncio.wait_for(reader.read(min(CHUNK, left)), stall_s)
                if not piece:
                    raise EngineError(f"relay {address} broke off {left} bytes before the end")
                left -= len(piece)
                yield piece

    return source


def in_turn(
    sources: tuple[Source, ...], link_bytes_per_s: float | None = None, on_slow: OnSlow | None = None
) -> Source:
    """Return a source that goes on at the next one, from where it is, when one fails or is too slow.

    The last one may be as slow as it is, and its error is raised. The other parameters are those of paced().
    """
    each = (*(paced(one, link_bytes_per_s, on_slow) for one in sources[:-1]), sources[-1])

    async def source(wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        for last, one in ((one is each[-1], one) for one in each):
            try:
                async for piece in one(wanted, offset):
                    offset += len(piece)
                    yield piece
                return
            except EngineError as error:
                if last:
                    raise
                log.warning("weights_source_failed", file=wanted.sha256[:12], offset=offset, reason=str(error))

    return source


class WeightRelay:
    """Serves the versions that lie in, or are arriving at, a node's weight folder."""

    def __init__(self, token: str, cap: LinkCap | None = None, stall_s: float = STALL_S) -> None:
        self.token = token
        """Whoever has it may ask."""
        self._stall_s = stall_s
        self._cap = cap or LinkCap()
        self._offered: dict[str, tuple[tuple[Path, ...], int]] = {}
        """Digest -> where the file is or will be, and its bytes; the newest ones."""
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._open = 0
        self.port = 0
        self.sent_bytes = 0
        """Bytes of weights sent so far."""

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 takes any free one. Raises EngineError for an address beyond this machine without TLS."""
        if tls is None and not is_loopback(host):
            raise EngineError(f"a relay listens on {host} only with a certificate")
        self._server = await asyncio.start_server(self._serve, host, port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def offer(self, manifest: WeightsManifest, directory: Path) -> None:
        """Serve a version from its directory in a WeightFolder, or from the part beside it, there already or not."""
        self._offer(manifest.sha256, manifest.size, (directory / WEIGHTS_FILE, directory.with_suffix(".part")))

    def offer_delta(self, delta: WeightsDelta, path: Path) -> None:
        """Serve a delta's file, there already or arriving."""
        self._offer(delta.sha256, delta.size, (path,))

    def _offer(self, digest: str, size: int, places: tuple[Path, ...]) -> None:
        self._offered.pop(digest, None)
        self._offered[digest] = places, size
        self._news.set()
        while len(self._offered) > MAX_OFFERED:
            del self._offered[next(iter(self._offered))]

    def withdraw(self, manifest: WeightsManifest) -> None:
        """Serve a version no more."""
        self._offered.pop(manifest.sha256, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MAX_OPEN:
            writer.close()
            return
        self._open += 1
        try:
            digest, offset = await asyncio.wait_for(self._asked(reader, writer), self._stall_s)
            places, size = await self._heard_of(digest)
            writer.write(_SIZE.pack(size))
            if places and offset <= size:
                await self._send(writer, places, offset, size)
        except (OSError, TimeoutError, EngineError, asyncio.IncompleteReadError) as error:
            log.info("relay_broke_off", reason=repr(error))
        finally:
            self._open -= 1
            writer.close()

    async def _heard_of(self, digest: str) -> tuple[tuple[Path, ...], int]:
        """Return where a file is or will be; none when nobody tells us of it in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAR_S):
                while digest not in self._offered:
                    self._news.clear()
                    await self._news.wait()
        return self._offered.get(digest, ((), 0))

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
        nonce = secrets.token_bytes(NONCE)
        writer.write(nonce)
        hello, digest, offset, proof = _ASK.unpack(await reader.readexactly(_ASK.size))
        if (
            hello != HELLO
            or not self.token
            or not hmac.compare_digest(proof, _proof(self.token, nonce, digest, offset))
        ):
            raise EngineError("relay: a caller without the token")
        return digest.hex(), offset

    async def _send(self, writer: asyncio.StreamWriter, places: tuple[Path, ...], offset: int, size: int) -> None:
        writer.transport.set_write_buffer_limits(high=CHUNK)
        await asyncio.sleep(self._cap.latency_s)
        file = await self._opened(places)
        try:
            while offset < size:
                await self._grown(file, offset)
                piece = await asyncio.to_thread(os.pread, file, min(CHUNK, size - offset), offset)
                await self._cap.bucket.take(len(piece))
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), self._stall_s)
                offset += len(piece)
                self.sent_bytes += len(piece)
        finally:
            os.close(file)

    async def _opened(self, places: tuple[Path, ...]) -> int:
        """Return a descriptor of the file, which survives that the part is given its final name."""
        give_up_at = time.monotonic() + self._stall_s
        while True:
            for path in places:
                try:
                    return os.open(path, os.O_RDONLY)
                except FileNotFoundError:
                    continue
            if time.monotonic() > give_up_at:
                raise EngineError(f"relay: {places[0]} did not begin to arrive")
            await asyncio.sleep(POLL_S)

    async def _grown(self, file: int, offset: int) -> None:
        """Wait until the file has bytes behind the offset."""
        give_up_at = time.monotonic() + self._stall_s
        while os.fstat(file).st_size <= offset:
            if time.monotonic() > give_up_at:
                raise EngineError("relay: a version stopped arriving")
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def _connection(
    address: str, certificate: str, stall_s: float
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not certificate and not is_loopback(host):
        raise EngineError(f"relay {address} has no certificate, and is not on this machine")
    # Nodes' own certificates carry the coordinator's name; whoever trusts this one trusts no other.
    tls, name = (trusted_by(certificate), COORDINATOR_NAME) if certificate else (None, None)
    try:
        dialling = asyncio.open_connection(host, int(port), limit=4 * CHUNK, ssl=tls, server_hostname=name)
        reader, writer = await asyncio.wait_for(dialling, stall_s)
        try:
            yield reader, writer
        finally:
            writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise EngineError(f"relay {address} failed: {error!r}") from error


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    wanted: WeightsManifest | WeightsDelta,
    offset: int,
    token: str,
) -> None:
    digest = bytes.fromhex(wanted.sha256)
    nonce = await reader.readexactly(NONCE)
    writer.write(_ASK.pack(HELLO, digest, offset, _proof(token, nonce, digest, offset)))
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    if size != wanted.size:
        raise EngineError(f"relay: it has {size} bytes of {wanted.sha256[:12]}, not {wanted.size}")


def _proof(token: str, nonce: bytes, digest: bytes, offset: int) -> bytes:
    return hmac.new(token.encode(), nonce + digest + _SIZE.pack(offset), hashlib.sha256).digest()
