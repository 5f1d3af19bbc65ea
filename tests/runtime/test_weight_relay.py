import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from hexcloud.adapters.certificates import RunAuthority, server_context
from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime import weight_pace
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, Source, WeightFolder
from hexcloud.runtime.token_bucket import TokenBucket
from hexcloud.runtime.weight_relay import HEAR_S, NONCE, WeightRelay, in_turn, relay_source

CONTENT = random.Random(0).randbytes(2_000_000)
MANIFEST = WeightsManifest(epoch=0, version=1, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))
TOKEN = "secret"


class Node:
    """A node with a weight folder and a relay."""

    def __init__(self, folder: Path, bytes_per_s: float | None, stall_s: float) -> None:
        self.folder = WeightFolder(folder, LinkCap())
        self.relay = WeightRelay(TOKEN, LinkCap(TokenBucket(bytes_per_s)), stall_s)
        self.directory = self.folder.directory(MANIFEST)
        self.relay.offer(MANIFEST, self.directory)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.relay.port}"

    def store(self, content: bytes = CONTENT) -> None:
        self.directory.mkdir(parents=True)
        (self.directory / WEIGHTS_FILE).write_bytes(content)

    async def fetch(self, source: Source) -> bytes:
        return ((await self.folder.fetch(MANIFEST, source)) / WEIGHTS_FILE).read_bytes()


Story = Callable[[list[Node]], Awaitable[None]]


def tell(tmp_path: Path, story: Story, rates: tuple[float | None, ...], stall_s: float = 30.0) -> None:
    async def scene() -> None:
        nodes = [Node(tmp_path / str(index), rate, stall_s) for index, rate in enumerate(rates)]
        for node in nodes:
            await node.relay.start()
        await story(nodes)
        for node in nodes:
            await node.relay.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_chain_of_nodes_sends_the_first_copy_once_and_does_not_wait_for_whole_files(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store()
        loop = asyncio.get_running_loop()
        start = loop.time()
        pairs = pairwise(nodes)
        fetches = [node.fetch(relay_source(parent.address, TOKEN)) for parent, node in pairs]
        assert await asyncio.gather(*fetches) == [CONTENT] * 3
        assert loop.time() - start < 2.0, "three whole files one after the other would take three seconds"
        assert [node.relay.sent_bytes for node in nodes] == [len(CONTENT)] * 3 + [0]

    tell(tmp_path, story, (2e6,) * 4)


def test_a_caller_without_the_token_gets_nothing(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store()
        with pytest.raises(EngineError, match="failed"):
            await nodes[1].fetch(relay_source(nodes[0].address, "guess"))
        assert nodes[0].relay.sent_bytes == 0

    tell(tmp_path, story, (None, None))


def test_a_version_that_is_not_offered_is_refused(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store()
        nodes[0].relay.withdraw(MANIFEST)
        with pytest.raises(EngineError, match="it has 0 bytes of"):
            await nodes[1].fetch(relay_source(nodes[0].address, TOKEN))

    tell(tmp_path, story, (None, None))


def test_a_neighbour_that_lies_is_found_out(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store(CONTENT[:-1] + b"?")
        with pytest.raises(EngineError, match="not those of the manifest"):
            await nodes[1].fetch(relay_source(nodes[0].address, TOKEN))

    tell(tmp_path, story, (None, None))


def test_a_neighbour_that_dies_midway_is_replaced_where_it_stopped(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store()
        asked: list[int] = []

        async def dying(_wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
            yield CONTENT[offset : offset + 700_000]
            raise EngineError("it died")

        async def watched(wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
            asked.append(offset)
            async for piece in relay_source(nodes[0].address, TOKEN)(wanted, offset):
                yield piece

        assert await nodes[1].fetch(in_turn((dying, watched))) == CONTENT
        assert asked == [700_000]

    tell(tmp_path, story, (None, None))


def test_when_all_fail_the_last_error_is_told(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nobody = relay_source("127.0.0.1:1", TOKEN)
        with pytest.raises(EngineError, match=r"127\.0\.0\.1:1 failed"):
            await nodes[0].fetch(in_turn((nobody, nobody)))

    tell(tmp_path, story, (None,))


def test_a_version_that_never_arrives_ends_the_wait(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        with pytest.raises(EngineError, match=r"failed|broke off"):
            await nodes[1].fetch(relay_source(nodes[0].address, TOKEN))
        nodes[0].directory.with_suffix(".part").write_bytes(CONTENT[:1000])
        with pytest.raises(EngineError, match=r"failed|broke off"):
            await nodes[1].fetch(relay_source(nodes[0].address, TOKEN))
        assert nodes[1].directory.with_suffix(".part").read_bytes() == CONTENT[:1000]

    tell(tmp_path, story, (None, None), stall_s=0.2)


def test_beyond_one_machine_a_relay_proves_itself_and_nobody_reads_along(tmp_path: Path) -> None:
    own, other = (RunAuthority(secrets.token_bytes(32), time.time()) for _ in range(2))
    tls = server_context(own.certificate(NodeId("a")), own.private_key(NodeId("a")))

    async def scene() -> None:
        giver, taker = Node(tmp_path / "giver", None, 30.0), Node(tmp_path / "taker", None, 30.0)
        giver.store()
        with pytest.raises(EngineError, match="only with a certificate"):
            await giver.relay.start("0.0.0.0")
        await giver.relay.start(tls=tls)
        with pytest.raises(EngineError, match="failed"):
            await taker.fetch(relay_source(giver.address, TOKEN, other.ca_pem, stall_s=2.0))
        with pytest.raises(EngineError, match="relay"):
            await taker.fetch(relay_source(giver.address, TOKEN, stall_s=1.0))
        with pytest.raises(EngineError, match="has no certificate"):
            await taker.fetch(relay_source("192.0.2.1:9", TOKEN))
        assert await taker.fetch(relay_source(giver.address, TOKEN, own.ca_pem)) == CONTENT
        await giver.relay.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_relay_that_hangs_is_left_in_time(tmp_path: Path) -> None:
    async def scene() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def coordinator(_wanted: object, offset: int) -> AsyncIterator[bytes]:
            yield CONTENT[offset:]

        taker = Node(tmp_path, None, 30.0)
        begun_s = time.monotonic()
        source = in_turn((relay_source(address, TOKEN, stall_s=0.3), coordinator))
        assert await taker.fetch(source) == CONTENT
        assert time.monotonic() - begun_s < HEAR_S + 10
        server.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_relay_that_drips_is_left_for_the_next_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_pace, "WINDOW_S", 0.3)

    async def scene() -> None:
        async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(NONCE))
            await reader.readexactly(80)
            writer.write(len(CONTENT).to_bytes(8))
            with suppress(OSError):
                for byte in CONTENT:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)
            writer.close()
            has_left.set()

        async def coordinator(_wanted: object, offset: int) -> AsyncIterator[bytes]:
            yield CONTENT[offset:]

        has_left = asyncio.Event()
        server = await asyncio.start_server(dripping, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        taker = Node(tmp_path, None, 30.0)
        assert await taker.fetch(in_turn((relay_source(address, TOKEN), coordinator))) == CONTENT
        await has_left.wait()
        server.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_who_asks_before_the_relay_has_heard_of_a_version_is_served_once_it_has(tmp_path: Path) -> None:
    async def story(nodes: list[Node]) -> None:
        nodes[0].store()
        nodes[0].relay.withdraw(MANIFEST)
        asking = asyncio.create_task(nodes[1].fetch(relay_source(nodes[0].address, TOKEN)))
        await asyncio.sleep(0.2)
        nodes[0].relay.offer(MANIFEST, nodes[0].directory)
        assert await asking == CONTENT

    tell(tmp_path, story, (None, None))
