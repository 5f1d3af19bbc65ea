import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.probe import (
    HELLO,
    MAX_OPEN,
    MAX_PAYLOAD,
    MAX_PER_S,
    LinkCap,
    LinkMeasure,
    ProbeServer,
    payload_bytes,
    probe,
)
from hexcloud.runtime.token_bucket import TokenBucket


async def with_server(use: Callable[[str], Awaitable[LinkMeasure]], cap: LinkCap | None = None) -> LinkMeasure:
    server = ProbeServer(cap)
    await server.start()
    try:
        return await use(f"127.0.0.1:{server.port}")
    finally:
        await server.close()


def test_an_open_loopback_link_is_fast_and_near() -> None:
    found = asyncio.run(with_server(probe))
    assert found.gb_per_s > 0.02
    assert 0 < found.latency_ms < 50


@pytest.mark.parametrize("bytes_per_s", [20e3, 1e6, 8e6])
def test_the_senders_cap_is_what_the_probe_finds(bytes_per_s: float) -> None:
    cap = LinkCap(TokenBucket(bytes_per_s))
    found = asyncio.run(with_server(lambda address: probe(address, payload_bytes(bytes_per_s), cap)))
    assert found.gb_per_s == pytest.approx(bytes_per_s / 1e9, rel=0.25)


def test_the_receivers_cap_counts_too() -> None:
    cap = LinkCap(TokenBucket(1e6))
    found = asyncio.run(with_server(lambda address: probe(address, payload_bytes(1e6)), cap))
    assert found.gb_per_s == pytest.approx(1e-3, rel=0.25)


def test_peers_that_come_at_once_each_find_the_whole_link() -> None:
    async def crowd(address: str) -> LinkMeasure:
        found = await asyncio.gather(*(probe(address, payload_bytes(2e6)) for _ in range(3)))
        return min(found, key=lambda one: one.gb_per_s)

    slowest = asyncio.run(with_server(crowd, LinkCap(TokenBucket(2e6))))
    assert slowest.gb_per_s == pytest.approx(2e-3, rel=0.3)


def test_latencies_of_both_ends_add_up() -> None:
    found = asyncio.run(
        with_server(lambda address: probe(address, 4096, LinkCap(latency_s=0.02)), LinkCap(latency_s=0.01))
    )
    assert 30 <= found.latency_ms < 45


def test_a_payload_fits_the_pace_of_the_link() -> None:
    assert payload_bytes(None) == payload_bytes(1e12) == MAX_PAYLOAD
    assert payload_bytes(1e6) == 400_000


def test_nobody_there_is_an_engine_error() -> None:
    async def ask_a_closed_port() -> None:
        server = ProbeServer()
        await server.start()
        await server.close()
        await probe(f"127.0.0.1:{server.port}")

    with pytest.raises(EngineError, match="probe of 127"):
        asyncio.run(ask_a_closed_port())


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:not-a-port"])
def test_an_address_that_is_none_is_an_engine_error(address: str) -> None:
    with pytest.raises(EngineError):
        asyncio.run(probe(address))


def test_exchanges_are_limited_per_second() -> None:
    now = 0.0
    server = ProbeServer(clock=lambda: now)
    assert [server.may_serve() for _ in range(MAX_PER_S + 1)] == [True] * MAX_PER_S + [False]
    now = 1.5
    assert server.may_serve()


def test_a_stranger_is_cut_off_and_too_many_at_once_are_refused() -> None:
    async def crowd() -> None:
        server = ProbeServer()
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        # Leftover bytes of a stranger may turn the close into a reset; either way nothing is answered.
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_OPEN)]
        for _, one in held:
            one.write(HELLO)
        await asyncio.sleep(0.1)
        with pytest.raises(EngineError):
            await probe(f"127.0.0.1:{server.port}")
        for _, one in held:
            one.close()
        await server.close()

    asyncio.run(crowd())


def test_a_payload_over_the_limit_ends_without_a_verdict() -> None:
    async def flood() -> bytes:
        server = ProbeServer()
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HELLO + b"???")
        await reader.readexactly(3)
        writer.write(bytes(2 * MAX_PAYLOAD))
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            await server.close()

    assert asyncio.run(flood()) == b""
