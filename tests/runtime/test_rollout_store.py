"""Weights through a store of the region: real nodes' ways, a real coordinator, stores over HTTP."""

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hexcloud.adapters.objects import Bucket
from hexcloud.adapters.weight_store import FileSystem, read_place
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Admit, WeightsManifest
from hexcloud.runtime import coordinator_app, rollout_store, weight_pace
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.coordinator_stores import StoredCopies, WeightStore
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer
from hexcloud.runtime.rollout_store import RegionStore
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.weight_relay import WeightRelay
from tests.runtime.conftest import SECRET
from tests.runtime.test_rollout_way import FAR, Neighbour, Trainer
from tests.runtime.web_store import WebStore

Story = Callable[[Coordinator, Trainer, list[Neighbour]], Awaitable[None]]
Tell = Callable[[Story, WeightStore, int], None]


@pytest.fixture
def tell(make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer, tmp_path: Path) -> Tell:
    """Run a story with so many nodes in a region that has a store, away from the head."""

    def run(story: Story, store: WeightStore, count: int) -> None:
        async def scene() -> None:
            coordinator = make_coordinator()
            coordinator.weights.copies = StoredCopies({FAR: store})
            async with serving(coordinator, SECRET):
                nodes = []
                for index in range(count):
                    node_id, token = NodeId(f"run.far.{index}"), f"token-{index}"
                    coordinator.admit(Admit(node_id=node_id, token_sha256=token_sha256(token)))
                    link = CoordinatorLink(find_pointer, token)
                    node = Neighbour(node_id, link, WeightFolder(tmp_path / f"n{index}", LinkCap()), WeightRelay(""))
                    await node.join()
                    region_store = RegionStore(link, node_id, FAR, read_place)
                    node.way = WeightWay(link, node.folder, node.relay, region_store)
                    nodes.append(node)
                await story(coordinator, Trainer(coordinator, tmp_path), nodes)
                for node in nodes:
                    await node.relay.close()
                    await node.link.__aexit__(None, None, None)
                await coordinator.weights.copies.close()

        asyncio.run(asyncio.wait_for(scene(), 60))

    return run


@pytest.fixture
def web_store(tmp_path: Path) -> Iterator[WebStore]:
    store = WebStore(tmp_path / "store")
    yield store
    store.close()


@pytest.fixture(params=["s3", "file"])
def region_store(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket | FileSystem:
    if request.param == "file":
        return FileSystem(f"file://{tmp_path}/region")
    import boto3

    request.getfixturevalue("moto")
    client = boto3.client("s3", region_name="us-west-2")
    client.create_bucket(Bucket=tmp_path.name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    client.close()
    return Bucket(f"s3://{tmp_path.name}/run-1", "us-west-2")


def is_there(node: Neighbour, manifest: WeightsManifest) -> bool:
    return hashlib.sha256(node.bytes_of(manifest)).hexdigest() == manifest.sha256


def test_one_copy_goes_to_the_region_whole_or_as_delta_and_none_from_the_coordinator(
    tell: Tell, region_store: Bucket | FileSystem
) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        before, have, crossed = 0, None, coordinator.weights.copies.sent_bytes
        for most in (1.0, 0.1):
            version = trainer.publish()
            await asyncio.gather(*(node.way.bring(version, have) for node in nodes))
            assert all(is_there(node, version) for node in nodes)
            assert 0 < crossed[FAR] - before <= most * version.size
            assert coordinator.sent_bytes.total() == 0 and all(node.relay.sent_bytes == 0 for node in nodes)
            before, have = crossed[FAR], version
        view = coordinator.view()
        assert view.stored_bytes == {FAR: before} and view.stores_trouble == {}

    tell(story, region_store, 8)
    assert region_store.list("weights") == (), "a run that is over leaves nothing"


def test_a_download_goes_on_where_it_stopped(tell: Tell, web_store: WebStore) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        path = coordinator.weights.intact_path(0, 0)
        assert path is not None
        part = nodes[0].folder.directory(version).with_suffix(".part")
        part.write_bytes(path.read_bytes()[:300_000])
        await nodes[0].way.bring(version, None)
        assert web_store.reads == [(f"weights/{version.sha256}", 300_000)] and is_there(nodes[0], version)

    tell(story, web_store, 1)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("refuses", "HTTP 403"),
        ("has lost it", "HTTP 404"),
        ("has half of it", "400040 bytes are missing"),
        ("cannot be written", "access is denied"),
    ],
)
def test_a_store_that_fails_is_named_and_the_nodes_take_another_way(
    tell: Tell, web_store: WebStore, what: str, reason: str
) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        if what == "cannot be written":
            web_store.refuses_writing = True
        else:
            path = coordinator.weights.intact_file(version.sha256)
            assert path is not None
            await coordinator.weights.copies.place(FAR, version.sha256, path, 5)
        if what == "refuses":
            web_store.status = 403
        if what == "has lost it":
            web_store.delete((f"weights/{version.sha256}",))
        if what == "has half of it":
            stored = web_store.file(f"weights/{version.sha256}")
            stored.write_bytes(stored.read_bytes()[: version.size - 400_040])
        with capture_logs() as logs:
            await asyncio.gather(*(node.way.bring(version, None) for node in nodes))
        assert all(is_there(node, version) for node in nodes)
        told = [line["reason"] for line in logs if line["event"] == "weights_store_failed"]
        assert told and all(reason in one for one in told)
        assert reason in coordinator.view().stores_trouble[FAR]
        assert coordinator.sent_bytes.total() <= version.size, "the relay, too, is still a way"
        assert not any("signature" in str(line) for line in logs)

    tell(story, web_store, 2)


@pytest.mark.parametrize("kind", ["whole", "delta"])
def test_other_bytes_than_the_digest_says_are_never_taken_and_are_the_stores_fault(
    tell: Tell, web_store: WebStore, kind: str
) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        (node,), have = nodes, None
        if kind == "delta":
            have = trainer.publish()
            await node.way.bring(have, None)
        version = trainer.publish()
        deltas = coordinator.weights.deltas_to(0, version.version)
        sha256 = deltas[-1].sha256 if kind == "delta" else version.sha256
        path = coordinator.weights.intact_file(sha256)
        assert path is not None
        await coordinator.weights.copies.place(FAR, sha256, path, 5)
        stored = web_store.file(f"weights/{sha256}")
        stored.write_bytes(stored.read_bytes()[:-3] + b"???")
        try:
            await node.way.bring(version, have)
        except Exception as error:  # noqa: BLE001 - the node tries again, then from the coordinator
            assert "not those of the manifest" in str(error)
            await node.way.bring(version, have, is_direct=True)
        assert is_there(node, version) and coordinator.view().stores_trouble.keys() == {FAR}
        assert coordinator.sent_bytes.total() > 0

    tell(story, web_store, 1)


def test_a_copy_that_never_gets_there_is_not_waited_for(
    tell: Tell, web_store: WebStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_pace, "PATIENCE_S", 0.2)
    monkeypatch.setattr(weight_pace, "SLOWEST_BYTES_PER_S", 1e12)
    monkeypatch.setattr(coordinator_app, "PLACE_WAIT_S", 0.05)

    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        web_store.is_open.clear()
        await nodes[0].way.bring(version, None)
        assert is_there(nodes[0], version)
        assert "in time" in coordinator.view().stores_trouble[FAR]
        web_store.is_open.set()

    tell(story, web_store, 1)


def test_a_store_that_drips_is_named_and_not_waited_for(
    tell: Tell, web_store: WebStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_pace, "WINDOW_S", 0.3)

    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        web_store.drip_s = 0.02
        await nodes[0].way.bring(version, None)
        assert is_there(nodes[0], version)
        assert "too slow" in coordinator.view().stores_trouble[FAR]
        web_store.drip_s = 0.0

    tell(story, web_store, 1)


def test_a_store_whose_headers_drip_is_not_waited_for(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_store, "STALL_S", 0.5)

    class Elsewhere(FileSystem):
        def place(self, name: str, for_s: int) -> str:
            return f"http://127.0.0.1:{server.getsockname()[1]}/{name}"

    def drip() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            for _ in range(200):
                connection.sendall(b"0")
                time.sleep(0.1)

    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version, begun_s = trainer.publish(), time.monotonic()
        await nodes[0].way.bring(version, None)
        assert is_there(nodes[0], version) and time.monotonic() - begun_s < 15.0
        assert "did not answer within 0.5 s" in coordinator.view().stores_trouble[FAR]

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, daemon=True).start()
        tell(story, Elsewhere((tmp_path / "store").as_uri()), 1)


def test_a_store_that_opens_and_says_nothing_is_named_and_not_waited_for(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_store, "STALL_S", 0.3)
    is_over = threading.Event()

    def silent(_url: str, _offset: int) -> Iterator[bytes]:
        is_over.wait()
        yield b""

    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        node, version = nodes[0], trainer.publish()
        node.way = WeightWay(node.link, node.folder, node.relay, RegionStore(node.link, node.id, FAR, silent))
        await node.way.bring(version, None)
        assert is_there(node, version)
        assert "said nothing for 0.3 s" in coordinator.view().stores_trouble[FAR]
        is_over.set()

    tell(story, FileSystem((tmp_path / "store").as_uri()), 1)
