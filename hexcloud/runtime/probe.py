"""Probe: bandwidth and latency between two nodes, one way, over a real TCP socket.

One exchange per connection: hello, three pings, payload, verdict, close. The receiver times the payload, so the figure
is what arrived and not what the sender's buffers swallowed. The server needs no token: it gives nothing away, and
bounds size, time, number and rate of exchanges.

    client -> HELLO                      server -> (nothing; closes if it is busy)
    client -> 1 byte, three times        server -> the same byte
    client -> payload, then end of file  server -> bytes counted (u64), seconds they took (f64)
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.token_bucket import TokenBucket

HELLO = b"HXPROBE1"
PINGS = 3
CHUNK = 16 * 1024
MIN_PAYLOAD = 4 * 1024
MAX_PAYLOAD = 4 * 1024 * 1024
"""Bytes. A loopback socket moves that in milliseconds; a slow link is cut by SEND_S."""
SEND_S = 0.4
"""How long a link of the expected speed is busy."""
GIVE_UP_S = 1.0
"""A sender stops after this, whatever is left: a probe must not hold a link that is slower than expected."""
EXCHANGE_S = 10.0
"""Both sides give up after this."""
MAX_OPEN = 8
MAX_PER_S = 16
VERDICT = struct.Struct("!Qd")

log = structlog.get_logger()


@dataclass(frozen=True)
class LinkCap:
    """One node's emulated link. The default is the real link as it is."""

    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(None))
    latency_s: float = 0.0
    """Added to each probe's bytes that leave or reach the node, and once to each version of the weights it fetches."""


@dataclass(frozen=True)
class LinkMeasure:
    """What a probe found, one way."""

    gb_per_s: float
    """1e9 bytes per second."""
    latency_ms: float


def payload_bytes(bytes_per_s: float | None) -> int:
    """Return how much to send so that a link of this speed is busy for SEND_S."""
    if bytes_per_s is None:
        return MAX_PAYLOAD
    return max(MIN_PAYLOAD, min(MAX_PAYLOAD, int(bytes_per_s * SEND_S)))


async def probe(address: str, size: int = MAX_PAYLOAD, cap: LinkCap | None = None) -> LinkMeasure:
    """Measure the link to a probe server at `host:port` with at most `size` bytes.

    Raises EngineError when the other side does not answer, is busy or breaks the protocol.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(EXCHANGE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                return await _measure(reader, writer, size, cap or LinkCap())
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise EngineError(f"probe of {address} failed: {error!r}") from error


async def _measure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int, cap: LinkCap) -> LinkMeasure:
    writer.write(HELLO)
    latency_s = min([await _ping(reader, writer, cap) for _ in range(PINGS)])
    await _send(writer, min(size, MAX_PAYLOAD), cap)
    counted, seconds = VERDICT.unpack(await reader.readexactly(VERDICT.size))
    if counted == 0 or seconds <= 0:
        raise ValueError("nothing was measured")
    return LinkMeasure(gb_per_s=counted / seconds / 1e9, latency_ms=latency_s * 1e3)


async def _ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cap: LinkCap) -> float:
    started = time.monotonic()
    await asyncio.sleep(cap.latency_s)
    writer.write(b"?")
    await reader.readexactly(1)
    await asyncio.sleep(cap.latency_s)
    return (time.monotonic() - started) / 2


async def _send(writer: asyncio.StreamWriter, size: int, cap: LinkCap) -> None:
    """Send up to `size` bytes in at least sixteen pieces, so that a slow link's pace shows in a short time."""
    writer.transport.set_write_buffer_limits(high=CHUNK)
    piece = bytes(max(1, min(CHUNK, size // 16)))
    stop_at = time.monotonic() + GIVE_UP_S
    sent = 0
    while sent < size and time.monotonic() < stop_at:
        await cap.bucket.take(len(piece))
        writer.write(piece)
        await writer.drain()
        sent += len(piece)
    writer.write_eof()


class ProbeServer:
    """Answers probes on one port. Start it, read `port`, close it."""

    def __init__(self, cap: LinkCap | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._cap = cap or LinkCap()
        self._clock = clock
        self._open = 0
        self._turn = asyncio.Lock()
        self._started: deque[float] = deque(maxlen=MAX_PER_S)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes any free one."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def may_serve(self) -> bool:
        """Is there room for one more exchange now? Counts it when there is."""
        now = self._clock()
        is_full = len(self._started) == MAX_PER_S and now - self._started[0] < 1.0
        if is_full or self._open >= MAX_OPEN:
            return False
        self._started.append(now)
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.may_serve():
                self._open += 1
                try:
                    async with asyncio.timeout(EXCHANGE_S):
                        await self._exchange(reader, writer)
                finally:
                    self._open -= 1
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.info("probe_refused", reason=repr(error))
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(len(HELLO)) != HELLO:
            raise ValueError("not a probe")
        # Peers that come at the same moment would each find a share of our link only.
        async with self._turn:
            for _ in range(PINGS):
                ping = await reader.readexactly(1)
                await asyncio.sleep(2 * self._cap.latency_s)
                writer.write(ping)
            counted, seconds = await self._receive(reader)
            writer.write(VERDICT.pack(counted, seconds))
            await writer.drain()

    async def _receive(self, reader: asyncio.StreamReader) -> tuple[int, float]:
        """Return (bytes, seconds) after the first read, which may be what the network had already piled up."""
        await reader.read(CHUNK)
        started = time.monotonic()
        counted = 0
        while piece := await reader.read(CHUNK):
            counted += len(piece)
            if counted > MAX_PAYLOAD:
                raise ValueError("payload too large")
            await self._cap.bucket.take(len(piece))
        return counted, time.monotonic() - started
