"""The keeper against an engine that fails on demand; the real one is in tests/node."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import EngineInfo, FinishKind, Generation, GenerationRequest, PauseMode
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime import rollout_engine
from hexcloud.runtime.rollout_engine import MAX_RESTARTS, EngineDeadError, EngineKeeper

T = TypeVar("T")
REQUESTS = (GenerationRequest(rid="a", input_ids=(1,), max_new_tokens=1),)


class FragileEngine:
    """Answers until it is broken."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.is_broken = False

    def _answer(self) -> None:
        if self.is_broken:
            raise EngineError("broken")

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        self._answer()
        return tuple(
            Generation(rid=one.rid, tokens=(2,), logprobs=(0.0,), versions=(self.version,), finish=FinishKind.STOP)
            for one in requests
        )

    def update_weights_from_disk(self, path: str, version: int) -> None:
        self._answer()
        self.version = version

    def pause(self, mode: PauseMode) -> None:
        self._answer()

    def resume(self) -> None:
        self._answer()

    def abort(self, rids: tuple[str, ...]) -> None:
        self._answer()

    def abort_all(self) -> None:
        self._answer()

    def is_healthy(self) -> bool:
        return not self.is_broken

    def info(self) -> EngineInfo:
        return EngineInfo(model_path="", version=self.version)


class Workshop:
    """Starts engines, and counts them; the first `bad` starts fail."""

    def __init__(self, bad: int = 0) -> None:
        self.bad = bad
        self.starts = 0
        self.engines: list[FragileEngine] = []

    def start(self, directory: Path, version: int) -> FragileEngine:
        self.starts += 1
        if self.starts <= self.bad:
            raise EngineError("does not start")
        self.engines.append(FragileEngine(version))
        return self.engines[-1]


def manifest(version: int) -> WeightsManifest:
    return WeightsManifest(epoch=0, version=version, sha256="0" * 64, size=1)


def run(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(work)


async def loaded(workshop: Workshop, version: int = 3) -> EngineKeeper:
    keeper = EngineKeeper(workshop.start, threads=2)
    await keeper.load(manifest(version), Path("w"))
    return keeper


def test_the_first_weights_start_the_engine_and_later_ones_do_not() -> None:
    async def story() -> None:
        workshop = Workshop()
        keeper = await loaded(workshop)
        await keeper.load(manifest(4), Path("w"))
        assert (workshop.starts, keeper.loaded) == (1, manifest(4))
        assert (await keeper.generate(REQUESTS))[0].versions == (4,)
        keeper.close()

    run(story())


def test_nothing_is_generated_before_weights_are_loaded() -> None:
    keeper = EngineKeeper(Workshop().start, threads=1)
    assert not keeper.is_serving
    with pytest.raises(EngineError, match="no engine serves"):
        run(keeper.generate(REQUESTS))


def test_it_says_that_it_pauses_until_weights_are_loaded_and_while_new_ones_are() -> None:
    class SlowToLoad(FragileEngine):
        def update_weights_from_disk(self, path: str, version: int) -> None:
            may_end.wait(10)

    async def story() -> None:
        keeper = EngineKeeper(lambda directory, version: SlowToLoad(version), threads=2)
        assert keeper.is_paused
        await keeper.load(manifest(3), Path("w"))
        assert not keeper.is_paused
        loading = asyncio.create_task(keeper.load(manifest(4), Path("w")))
        await asyncio.sleep(0.01)
        assert (keeper.is_paused, keeper.is_serving) == (True, True)
        may_end.set()
        await loading
        assert not keeper.is_paused
        keeper.close()

    may_end = threading.Event()
    run(story())


def test_a_load_that_fails_gives_a_fresh_engine_with_the_new_weights() -> None:
    async def story() -> None:
        workshop = Workshop()
        keeper = await loaded(workshop)
        workshop.engines[0].is_broken = True
        await keeper.load(manifest(4), Path("w"))
        assert (workshop.starts, keeper.loaded, keeper.is_serving) == (2, manifest(4), True)
        assert workshop.engines[-1].version == 4

    run(story())


def test_many_failed_batches_replace_a_dead_engine_once() -> None:
    async def story() -> None:
        workshop = Workshop()
        keeper = await loaded(workshop)
        workshop.engines[0].is_broken = True
        with pytest.raises(EngineError, match="broken"):
            await keeper.generate(REQUESTS)
        await asyncio.gather(keeper.heal(), keeper.heal(), keeper.heal())
        assert workshop.starts == 2
        await keeper.generate(REQUESTS)

    run(story())


def test_an_engine_that_answers_is_not_replaced() -> None:
    async def story() -> None:
        workshop = Workshop()
        await (await loaded(workshop)).heal()
        assert workshop.starts == 1

    run(story())


def test_it_gives_up_after_some_failures_in_a_row() -> None:
    async def story() -> None:
        workshop = Workshop(bad=99)
        with pytest.raises(EngineDeadError, match="times in a row"):
            await loaded(workshop)
        assert workshop.starts == MAX_RESTARTS + 1

    run(story())


def test_a_good_batch_between_failures_forgives_them() -> None:
    async def story() -> None:
        workshop = Workshop()
        keeper = await loaded(workshop)
        for _ in range(2 * MAX_RESTARTS):
            await keeper.generate(REQUESTS)
            workshop.engines[-1].is_broken = True
            await keeper.heal()
        assert workshop.starts == 2 * MAX_RESTARTS + 1

    run(story())


def test_aborts_of_a_dead_engine_are_no_error() -> None:
    async def story() -> None:
        workshop = Workshop()
        keeper = await loaded(workshop)
        workshop.engines[0].is_broken = True
        await keeper.abort(("a",))
        await keeper.abort_all()

    run(story())


class HangingEngine(FragileEngine):
    """Says that it is well, and does not answer."""

    def __init__(self, version: int, release: threading.Event) -> None:
        super().__init__(version)
        self._release = release

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        self._release.wait(20)
        return super().generate(requests)


def test_an_engine_that_hangs_is_replaced_although_it_says_that_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_engine, "FIRST_PATIENCE_S", 0.1)
    workshop, release = Workshop(), threading.Event()

    def start(directory: Path, version: int) -> FragileEngine:
        healthy = workshop.start(directory, version)
        return HangingEngine(version, release) if workshop.starts == 1 else healthy

    async def scene() -> None:
        keeper = EngineKeeper(start, threads=4)
        await keeper.load(manifest(3), Path("w"))
        with pytest.raises(EngineError, match="hangs: 1 requests"):
            await keeper.generate(REQUESTS)
        assert not keeper.is_serving
        await keeper.heal()
        assert workshop.starts == 2
        assert (await keeper.generate(REQUESTS))[0].tokens == (2,)
        release.set()

    run(scene())


def test_patience_grows_with_what_is_asked_for_and_what_it_took_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_engine, "PATIENCE_S", 0.001)

    async def scene() -> None:
        keeper = await loaded(Workshop())
        await keeper.generate(REQUESTS)
        short, long = (
            keeper._patience_s((GenerationRequest(rid="a", input_ids=(1,), max_new_tokens=count),))
            for count in (10, 1000)
        )
        assert long == pytest.approx(100 * short)

    run(scene())
