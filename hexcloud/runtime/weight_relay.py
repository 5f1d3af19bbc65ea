"""WeightRelay: a node passes versions of the weights on to its neighbours, while they are still arriving.

One copy crosses to a region; inside it every node has its copy from another one. What is passed on may not be verified
yet: every receiver checks it against the coordinator's manifest before use, so a bad neighbour costs time, not a run.

    relay -> nonce (16 bytes)
    peer  -> HELLO, sha256 of the file (32), offset (u64), HMAC-SHA256 of nonce, digest and offset under the token
    relay -> size (u64; 0 when it will not have that file), then the bytes from the offset on, as they come
"""

import asyncio
import hashlib
import hmac
import os
import secrets
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, Source

HELLO = b"HXRELAY1"
NONCE = 16
CHUNK = 256 << 10
STALL_S = 30.0
"""Both sides give up when nothing moved for so long; the receiver goes on elsewhere from where it was."""
POLL_S = 0.01
"""How often a file that is still arriving is looked at."""
MAX_OPEN = 16

_ASK = struct.Struct("!8s32sQ32s")
_SIZE = struct.Struct("!Q")

log = structlog.get_logger()


def relay_source(address: str, token: str) -> Source:
    """Return a source of versions at the relay at `host:port`, as a WeightFolder wants one.

    It raises EngineError when the relay does not have the version, stalls, or the connection breaks.
    """

    async def source(manifest: WeightsManifest, offset: int) -> AsyncIterator[bytes]:
        async with _connection(address) as (reader, writer):
            await _ask(reader, writer, manifest, offset, token)
            left = manifest.size - offset
            while left:
                piece = await asyncio.wait_for(reader.read(min(CHUNK, left)), STALL_S)
                if not piece:
                    raise EngineError(f"relay {address} broke off {left} bytes before the end")
                left -= len(piece)
                yield piece

    return source


def in_turn(sources: tuple[Source, ...]) -> Source:
    """Return a source that goes on at the next one, from where it is, when one fails; the last error is raised."""

    async def source(manifest: WeightsManifest, offset: int) -> AsyncIterator[bytes]:
        for last, one in ((one is sources[-1], one) for one in sources):
            try:
                async for piece in one(manifest, offset):
                    offset += len(piece)
                    yield piece
                return
            except EngineError as error:
                if last:
                    raise
                log.warning("weights_source_failed", version=manifest.version, offset=offset, reason=str(error))

    return source


class WeightRelay:
    """Serves the versions that lie in, or are arriving at, a node's weight folder."""

    def __init__(self, token: str, cap: LinkCap | None = None, stall_s: float = STALL_S) -> None:
        self._token = token
        self._stall_s = stall_s
        self._cap = cap or LinkCap()
        self._offered: dict[str, tuple[Path, int]] = {}
        self._server: asyncio.Server | None = None
        self._open = 0
        self.port = 0
        self.sent_bytes = 0
        """Bytes of weights sent so far."""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes any free one."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def offer(self, manifest: WeightsManifest, directory: Path) -> None:
        """Serve a version from its directory in a WeightFolder, or from the part beside it, there already or not."""
        self._offered[manifest.sha256] = directory, manifest.size

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
            directory, size = self._offered.get(digest, (None, 0))
            writer.write(_SIZE.pack(size))
            if directory is not None and offset <= size:
                await self._send(writer, directory, offset, size)
        except (OSError, TimeoutError, EngineError, asyncio.IncompleteReadError) as error:
            log.info("relay_broke_off", reason=repr(error))
        finally:
            self._open -= 1
            writer.close()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
        nonce = secrets.token_bytes(NONCE)
        writer.write(nonce)
        hello, digest, offset, proof = _ASK.unpack(await reader.readexactly(_ASK.size))
        if hello != HELLO or not hmac.compare_digest(proof, _proof(self._token, nonce, digest, offset)):
            raise EngineError("relay: a caller without the token")
        return digest.hex(), offset

    async def _send(self, writer: asyncio.StreamWriter, directory: Path, offset: int, size: int) -> None:
        writer.transport.set_write_buffer_limits(high=CHUNK)
        await asyncio.sleep(self._cap.latency_s)
        file = await self._opened(directory)
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

    async def _opened(self, directory: Path) -> int:
        """Return a descriptor of the version's file, which survives that the part is given its final name."""
        give_up_at = time.monotonic() + self._stall_s
        while True:
            for path in (directory / WEIGHTS_FILE, directory.with_suffix(".part")):
                try:
                    return os.open(path, os.O_RDONLY)
                except FileNotFoundError:
                    continue
            if time.monotonic() > give_up_at:
                raise EngineError(f"relay: {directory.name} did not begin to arrive")
            await asyncio.sleep(POLL_S)

    async def _grown(self, file: int, offset: int) -> None:
        """Wait until the file has bytes behind the offset."""
        give_up_at = time.monotonic() + self._stall_s
        while os.fstat(file).st_size <= offset:
            if time.monotonic() > give_up_at:
                raise EngineError("relay: a version stopped arriving")
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=4 * CHUNK)
        try:
            yield reader, writer
        finally:
            writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise EngineError(f"relay {address} failed: {error!r}") from error


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, manifest: WeightsManifest, offset: int, token: str
) -> None:
    digest = bytes.fromhex(manifest.sha256)
    nonce = await asyncio.wait_for(reader.readexactly(NONCE), STALL_S)
    writer.write(_ASK.pack(HELLO, digest, offset, _proof(token, nonce, digest, offset)))
    (size,) = _SIZE.unpack(await asyncio.wait_for(reader.readexactly(_SIZE.size), STALL_S))
    if size != manifest.size:
        raise EngineError(f"relay: it has {size} bytes of version {manifest.version}, not {manifest.size}")


def _proof(token: str, nonce: bytes, digest: bytes, offset: int) -> bytes:
    return hmac.new(token.encode(), nonce + digest + _SIZE.pack(offset), hashlib.sha256).digest()
