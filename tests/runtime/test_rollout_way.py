import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import (
    Admit,
    DeltaReport,
    Register,
    RelayDoor,
    WeightsManifest,
)
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.delta import make_delta
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, WeightFolder
from hexcloud.runtime.token_bucket import TokenBucket
from hexcloud.runtime.weight_relay import WeightRelay
from tests.runtime.conftest import SECRET

FAR = "aws/far"
WORDS = 400_000


@dataclass
class Neighbour:
    """A rollout node's weights, without the rest of it."""

    id: NodeId
    link: CoordinatorLink
    folder: WeightFolder
    relay: WeightRelay
    way: WeightWay = field(init=False)
    door: RelayDoor = field(init=False)

    async def join(self) -> None:
        self.way = WeightWay(self.link, self.folder, self.relay)
        await self.relay.start()
        self.door = RelayDoor(address=f"127.0.0.1:{self.relay.port}")
        await self.link.register(
            Register(node_id=self.id, role=Role.ROLLOUT, slots=4, address="127.0.0.1:1", region=FAR, relay=self.door)
        )

    def bytes_of(self, manifest: WeightsManifest) -> bytes:
        return (self.folder.directory(manifest) / WEIGHTS_FILE).read_bytes()


class Trainer:
    """Publishes versions of which each differs from the one before in few words."""

    def __init__(self, coordinator: Coordinator, folder: Path) -> None:
        self._coordinator = coordinator
        self._folder = folder
        self._words = np.arange(WORDS, dtype=np.uint16) % 10_000
        self._published: list[tuple[Path, WeightsManifest]] = []

    def publish(self, changed: int = 1000) -> WeightsManifest:
        version = len(self._published)
        self._words[version : version + 7 * changed : 7] += 1
        path = self._folder / f"{version}.safetensors"
        path.write_bytes(save({"w": torch.from_numpy(self._words.view(np.float16))}))
        content = path.read_bytes()
        manifest = WeightsManifest(
            epoch=0, version=version, sha256=hashlib.sha256(content).hexdigest(), size=len(content)
        )
        # What is trained is no matter here: the versions are told as those of a run that goes on.
        self._coordinator.weights.add(manifest, path)
        if (delta := self._delta(path, manifest)) is not None:
            self._coordinator.weights.add_delta(delta)
        self._published.append((path, manifest))
        return manifest

    def delta_path(self, version: int) -> Path:
        return self._folder / f"{version}.delta"

    def _delta(self, path: Path, manifest: WeightsManifest) -> DeltaReport | None:
        if not self._published:
            return None
        target = self.delta_path(manifest.version)
        delta = make_delta(self._published[-1], (path, manifest), target)
        assert delta is not None
        return DeltaReport(path=str(target), delta=delta)


@pytest.fixture
def tell(make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer, tmp_path: Path) -> Callable[..., None]:
    """Run a story with so many nodes in one region and the head in another one, over links of 2 MB/s."""

    def run(story: Callable[..., object], count: int) -> None:
        async def scene() -> None:
            coordinator = make_coordinator()
            async with serving(coordinator, SECRET):
                neighbours = []
                for index in range(count):
                    node_id, token = NodeId(f"run.far.{index}"), f"token-{index}"
                    coordinator.admit(Admit(node_id=node_id, token_sha256=token_sha256(token)))
                    folder = WeightFolder(tmp_path / f"n{index}", LinkCap(TokenBucket(2e6)))
                    link = CoordinatorLink(find_pointer, token)
                    neighbours.append(Neighbour(node_id, link, folder, WeightRelay("")))
                    await neighbours[-1].join()
                await story(coordinator, Trainer(coordinator, tmp_path), neighbours)  # type: ignore[misc]
                for one in neighbours:
                    await one.relay.close()
                    await one.link.__aexit__(None, None, None)

        asyncio.run(asyncio.wait_for(scene(), 60))

    return run


def test_a_worker_that_has_the_version_before_takes_what_changed(tell: Callable[..., None]) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        (node,) = nodes
        first = trainer.publish()
        await node.way.bring(first, None)
        whole = coordinator.sent_bytes[node.id]
        assert whole >= first.size
        second = trainer.publish()
        await node.way.bring(second, first)
        assert coordinator.sent_bytes[node.id] - whole < 0.1 * second.size
        assert hashlib.sha256(node.bytes_of(second)).hexdigest() == second.sha256

    tell(story, 1)


def test_a_worker_that_is_some_versions_behind_takes_a_chain_and_a_newcomer_the_whole(
    tell: Callable[..., None],
) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        first = trainer.publish()
        for node in nodes[:1]:
            await node.way.bring(first, None)
        for _ in range(4):
            last = trainer.publish()
        sent = coordinator.sent_bytes[nodes[0].id]
        await nodes[0].way.bring(last, first)
        assert coordinator.sent_bytes[nodes[0].id] - sent < 0.3 * last.size
        here = [path for path in nodes[0].folder.directory(last).parent.iterdir() if path.is_dir()]
        assert set(here) == {nodes[0].folder.directory(one) for one in (first, last)}, "steps on the way are gone"
        assert hashlib.sha256(nodes[0].bytes_of(last)).hexdigest() == last.sha256
        await nodes[1].way.bring(last, None)
        assert nodes[1].bytes_of(last) == nodes[0].bytes_of(last)

    tell(story, 2)


@pytest.mark.parametrize("how", ["torn on its way", "made from another base"])
def test_a_delta_that_is_not_what_it_should_be_is_never_loaded(tell: Callable[..., None], how: str) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        (node,) = nodes
        first = trainer.publish()
        await node.way.bring(first, None)
        second = trainer.publish()
        if how == "torn on its way":
            trainer.delta_path(1).write_bytes(trainer.delta_path(1).read_bytes()[:-3] + b"???")
        else:
            path = node.folder.directory(first) / WEIGHTS_FILE
            path.write_bytes(path.read_bytes()[:-2] + b"??")
        sent = coordinator.sent_bytes[node.id]
        await node.way.bring(second, first)
        assert hashlib.sha256(node.bytes_of(second)).hexdigest() == second.sha256
        assert coordinator.sent_bytes[node.id] - sent >= second.size

    tell(story, 1)


def test_one_copy_crosses_to_a_region_whole_or_as_delta(tell: Callable[..., None]) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        before, have = 0, None
        for most in (1.01, 0.1):
            version = trainer.publish()
            await asyncio.gather(*(node.way.bring(version, have) for node in nodes))
            crossed = coordinator.sent_bytes.total() - before
            assert crossed <= most * version.size, "more than one copy crossed"
            assert [hashlib.sha256(node.bytes_of(version)).hexdigest() for node in nodes] == [version.sha256] * 4
            assert nodes[0].relay.sent_bytes >= 3 * crossed * 0.9
            before, have = coordinator.sent_bytes.total(), version

    tell(story, 4)


def test_when_the_relay_dies_its_neighbours_go_to_the_coordinator(tell: Callable[..., None]) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        bringing = [asyncio.create_task(node.way.bring(version, None)) for node in nodes]
        while not nodes[0].relay.sent_bytes:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.01)
        bringing[0].cancel()
        await nodes[0].relay.close()
        nodes[0].relay.token = "nobody's"
        await asyncio.gather(*bringing[1:])
        assert [hashlib.sha256(node.bytes_of(version)).hexdigest() for node in nodes[1:]] == [version.sha256] * 2

    tell(story, 3)


def test_a_node_that_was_revoked_gets_nothing_from_its_neighbours(tell: Callable[..., None]) -> None:
    async def story(coordinator: Coordinator, trainer: Trainer, nodes: list[Neighbour]) -> None:
        version = trainer.publish()
        old = (await nodes[1].link.ways(version)).relay_key
        coordinator.admit(Admit(node_id=NodeId("other"), token_sha256="0" * 64, revoke=(nodes[1].id,)))
        assert (await nodes[0].link.ways(version)).relay_key != old

    tell(story, 2)


def test_relays_are_for_the_regions_away_from_the_head(
    make_coordinator: Callable[[], Coordinator], rollout_spec: NodeSpec
) -> None:
    coordinator = make_coordinator()
    for name, region in (("a", ""), ("b", FAR), ("c", FAR), ("d", "aws/other")):
        register = Register(
            node_id=NodeId(name),
            role=Role.ROLLOUT,
            slots=1,
            address="127.0.0.1:1",
            region=region,
            relay=RelayDoor(address=f"{name}:1"),
        )
        coordinator.register(register)
    found = {name: coordinator.ways(NodeId(name), 0, 0).relay for name in "abcd"}
    assert found == {"a": None, "b": None, "c": RelayDoor(address="b:1"), "d": None}
    coordinator.spec = rollout_spec.model_copy(update={"region": FAR})
    assert coordinator.ways(NodeId("c"), 0, 0).relay is None
