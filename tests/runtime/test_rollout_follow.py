import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Register, StepReport, WeightsManifest
from hexcloud.domain.plan import Role
from hexcloud.runtime import rollout_follow
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_engine import EngineKeeper, StartEngine
from hexcloud.runtime.rollout_follow import WeightFollower, identity
from hexcloud.runtime.rollout_link import CoordinatorLink
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.rollout_wire import Wire
from tests.runtime.threaded_engine import talkative_policy

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
Publish = Callable[[Coordinator, int], None]
Engines = Callable[[float], StartEngine]


def test_an_epoch_outranks_every_version_before_it() -> None:
    def of(epoch: int, version: int) -> WeightsManifest:
        return WeightsManifest(epoch=epoch, version=version, sha256="0" * 64, size=1)

    assert identity(None) < identity(of(0, 0)) < identity(of(0, 9)) < identity(of(1, 3))


def test_heard_versions_are_loaded_and_older_ones_ignored(
    tell_rollout: Callable[[Story], None], publish: Publish, engines: Engines, tmp_path: Path
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        first = await heard(link)
        keeper = EngineKeeper(engines(0.0), threads=2)
        folder = WeightFolder(tmp_path / "weights", LinkCap())
        follower = WeightFollower(WeightWay(link, folder), folder, keeper, Wire())
        loaded = asyncio.Event()
        following = asyncio.create_task(follower.follow(loaded.set))
        follower.want(None)
        follower.want(first)
        async with asyncio.timeout(60):
            await loaded.wait()
        assert keeper.loaded == first
        assert (folder.directory(first) / "model.safetensors").exists()
        follower.want(first.model_copy(update={"version": -1}))
        await asyncio.sleep(0.05)
        assert keeper.loaded == first
        following.cancel()

    tell_rollout(story)


def test_a_version_that_is_not_served_is_given_up_for_a_newer_one(
    tell_rollout: Callable[[Story], None], publish: Publish, engines: Engines, tmp_path: Path
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        served = await heard(link)
        keeper = EngineKeeper(engines(0.0), threads=2)
        folder = WeightFolder(tmp_path / "w", LinkCap())
        follower = WeightFollower(WeightWay(link, folder), folder, keeper, Wire())
        loaded = asyncio.Event()
        following = asyncio.create_task(follower.follow(loaded.set))
        follower.want(WeightsManifest(epoch=-1, version=3, sha256="0" * 64, size=1))
        await asyncio.sleep(0.1)
        assert keeper.loaded is None
        follower.want(served)
        async with asyncio.timeout(60):
            await loaded.wait()
        assert keeper.loaded == served
        following.cancel()

    tell_rollout(story)


def test_a_disk_that_takes_nothing_is_tried_again_until_it_does(
    tell_rollout: Callable[[Story], None], publish: Publish, engines: Engines, tmp_path: Path
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        first = await heard(link)
        keeper = EngineKeeper(engines(0.0), threads=2)
        folder = WeightFolder(tmp_path / "weights", LinkCap())
        follower = WeightFollower(WeightWay(link, folder), folder, keeper, Wire())
        loaded = asyncio.Event()
        blocked = folder.directory(first).with_suffix(".part")
        blocked.mkdir()  # opening it fails with an OSError, as writing does on a full disk
        with capture_logs() as logs:
            following = asyncio.create_task(follower.follow(loaded.set))
            follower.want(first)
            await asyncio.sleep(2 * rollout_follow.RETRY_S)
        assert not following.done() and not loaded.is_set()
        assert {entry["event"] for entry in logs if "reason" in entry} == {"weights_not_loaded"}
        blocked.rmdir()
        async with asyncio.timeout(5):
            await loaded.wait()
        assert keeper.loaded == first
        following.cancel()

    tell_rollout(story)


async def heard(link: CoordinatorLink) -> WeightsManifest:
    register = Register(node_id=NodeId("run.rollout.0"), role=Role.ROLLOUT, slots=16, address="127.0.0.1:1")
    manifest = (await link.register(register)).latest
    assert manifest is not None
    return manifest


def test_a_damaged_version_is_tried_ever_more_seldom_and_the_next_one_is_loaded_at_once(
    tell_rollout: Callable[[Story], None],
    publish: Publish,
    engines: Engines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        damaged = await heard(link)
        (tmp_path / "0.safetensors").write_bytes(b"torn")
        keeper = EngineKeeper(engines(0.0), threads=2)
        folder = WeightFolder(tmp_path / "w", LinkCap())
        follower = WeightFollower(WeightWay(link, folder), folder, keeper, Wire())
        loaded = asyncio.Event()
        following = asyncio.create_task(follower.follow(loaded.set))
        with capture_logs() as logs:
            follower.want(damaged)
            async with asyncio.timeout(60):
                while "weights_damaged" not in _tries(logs):  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0.01)
        assert _tries(logs) == ["weights_not_loaded", "weights_not_loaded", "weights_damaged"]
        _recover(coordinator, tmp_path)
        follower.want(await heard(link))
        async with asyncio.timeout(60):
            await loaded.wait()
        assert keeper.loaded is not None and keeper.loaded.epoch == 1
        following.cancel()

    monkeypatch.setattr(rollout_follow, "RETRY_S", 0.02)
    monkeypatch.setattr(rollout_follow, "MAX_RETRY_S", 60.0)
    tell_rollout(story)


def _tries(logs: list[EventDict]) -> list[str]:
    return [entry["event"] for entry in logs if entry["event"].startswith("weights_") and "path" not in entry]


def _recover(coordinator: Coordinator, folder: Path) -> None:
    """Publish as a trainer does that was restarted."""
    path = folder / "again.safetensors"
    content = talkative_policy().write(path, version=1)
    digest = hashlib.sha256(content).hexdigest()
    coordinator.publish(StepReport(epoch=1, version=0, path=str(path), sha256=digest, size=len(content)))
