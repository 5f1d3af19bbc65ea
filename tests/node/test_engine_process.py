"""The real embedded engine as a child."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import GenerationRequest
from hexcloud.domain.messages import WeightsManifest
from hexcloud.domain.plan import Role
from hexcloud.node.engine_process import EngineProcess
from hexcloud.runtime.rollout_engine import EngineKeeper
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import write_weights

REQUESTS = (GenerationRequest(rid="a", input_ids=(1, 5, 6), max_new_tokens=4),)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    model = build_model(TASKS["sort_digits"], seed=0)
    return write_weights(tmp_path / "weights", model.state_dict(), config_of(model)).path.parent


@pytest.fixture
def engine(make_spec: Callable[[Role], NodeSpec], tmp_path: Path) -> Iterator[EngineProcess]:
    process = EngineProcess(make_spec(Role.ROLLOUT), tmp_path)
    yield process
    process.close()


def children() -> list[psutil.Process]:
    """Return the engines that an EngineProcess started; those that other tests keep have no parent to watch."""
    living = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in living if "--parent-pid" in child.cmdline()]


def test_a_killed_engine_is_replaced_and_a_closed_one_leaves_nothing(engine: EngineProcess, weights: Path) -> None:
    manifest = WeightsManifest(epoch=0, version=5, sha256="0" * 64, size=1)

    async def scene() -> None:
        keeper = EngineKeeper(engine.start, threads=2)
        await keeper.load(manifest, weights)
        assert [one and one.versions[0] for one in await keeper.generate(REQUESTS)] == [5]
        (child,) = children()
        assert os.getpgid(child.pid) != os.getpgid(0)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await keeper.generate(REQUESTS)
        await keeper.heal()
        assert [one and one.versions[0] for one in await keeper.generate(REQUESTS)] == [5]
        engine.close()
        assert children() == []
        keeper.close()

    asyncio.run(scene())


def test_weights_that_cannot_be_served_are_an_engine_error(engine: EngineProcess, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="before it listened"):
        engine.start(tmp_path, 0)


def test_a_closed_process_starts_no_engine(engine: EngineProcess, weights: Path) -> None:
    engine.close()
    with pytest.raises(EngineError):
        engine.start(weights, 0)
    assert children() == []


def test_a_warm_engine_is_the_one_that_serves(engine: EngineProcess, weights: Path) -> None:
    engine.warm_up()
    (spare,) = children()
    assert engine.start(weights, 3).info().version == 3
    assert children() == [spare]
    engine.start(weights, 4)
    (another,) = children()
    assert another != spare


def test_a_warm_engine_that_died_is_an_engine_error_once(engine: EngineProcess, weights: Path) -> None:
    engine.warm_up()
    (spare,) = children()
    spare.kill()
    spare.wait()
    with pytest.raises(EngineError, match="ended"):
        engine.start(weights, 0)
    assert engine.start(weights, 0).is_healthy()


def test_a_warm_engine_nobody_needed_is_ended_too(engine: EngineProcess) -> None:
    engine.warm_up()
    engine.close()
    assert children() == []
