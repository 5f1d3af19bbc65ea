"""A real coordinator on a real socket, and one rollout node's line to it."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import StepReport
from hexcloud.domain.plan import Role, SlotName
from hexcloud.ports import Engine
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.pointer import read_pointer
from hexcloud.runtime.rollout_engine import StartEngine
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer
from hexcloud.runtime.tasks import TASKS
from tests.runtime.threaded_engine import ThreadedEngine, talkative_policy
from tests.runtime.words import make_word_folder

TOKEN, SECRET = "node-token", "run-secret"
HEAD, NODE = NodeId("run.trainer.0"), NodeId("run.rollout.0")

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]


@pytest.fixture
def engines() -> Iterator[Callable[[float], StartEngine]]:
    """Return what starts real engines of a given speed, seconds per token and some."""
    started: list[ThreadedEngine] = []

    def make(token_s: float) -> StartEngine:
        def start(directory: Path, version: int) -> Engine:
            started.append(ThreadedEngine(directory, version, token_s))
            return started[-1].client

        return start

    yield make
    for engine in started:
        engine.close()


@pytest.fixture
def rollout_spec(tmp_path: Path) -> NodeSpec:
    return NodeSpec(
        run_id=RunId("run"),
        node_id=NODE,
        slot=SlotName("rollout"),
        role=Role.ROLLOUT,
        task="sort_digits",
        seed=0,
        slots=16,
        samples_per_step=16,
        group_size=4,
        eta=2,
        steps=1000,
        run_dir=str(tmp_path),
        output=str(tmp_path / "output"),
        tokens_per_sample=2048,
        spend_lease_s=20.0,
        heartbeat_s=0.05,
    )


@pytest.fixture
def find_pointer(tmp_path: Path) -> FindPointer:
    """How a node finds the coordinator of these tests."""
    return partial(read_pointer, tmp_path, RunId("run"), SECRET)


@pytest.fixture
def make_coordinator(rollout_spec: NodeSpec) -> Callable[[], Coordinator]:
    """Make a coordinator that has admitted the node, and that keeps groups whose samples are all right."""

    def make() -> Coordinator:
        spec = rollout_spec.model_copy(update={"node_id": HEAD, "slot": SlotName("trainer"), "role": Role.TRAINER})
        access = AccessList("controller", {HEAD: token_sha256("head")})
        access.admit(NODE, token_sha256(TOKEN))
        return Coordinator(spec, TASKS[spec.task.name], access)

    return make


@pytest.fixture
def tell_rollout(make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer) -> Callable[[Story], None]:
    """Run a story with a coordinator that is really served, and a node's link to it."""

    def run(story: Story) -> None:
        async def scene() -> None:
            coordinator = make_coordinator()
            async with serving(coordinator, SECRET), CoordinatorLink(find_pointer, TOKEN) as link:
                await story(coordinator, link)

        asyncio.run(scene())

    return run


@pytest.fixture
def publish(tmp_path: Path) -> Callable[[Coordinator, int], None]:
    """Publish a version as the trainer does, after its batch was taken (version 0 needs none)."""
    policy = talkative_policy()

    def say(coordinator: Coordinator, version: int) -> None:
        path = tmp_path / f"{version}.safetensors"
        content = policy.write(path, version)
        coordinator.publish(
            StepReport(
                epoch=coordinator.epoch,
                version=version,
                path=str(path),
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
            )
        )

    return say


@pytest.fixture
def word_folder(tmp_path: Path) -> Path:
    return make_word_folder(tmp_path / "words")
