"""The keeper against an engine that fails on demand; the real one is in tests/node."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from hexcloud.domain.errors import EngineError, RequestRefusedError
from hexcloud.domain.generation import EngineInfo, FinishKind, Generation, GenerationRequest, PauseMode
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime import rollout_engine
from hexcloud.runtime.rollout_engine import MAX_FAILURES, MAX_RESTARTS, EngineDeadError, EngineKeeper

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


def versions(made: tuple[Generation | None, ...]) -> list[tuple[int, ...] | None]:
    return [None if one is None else one.versions for one in made]


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
        assert versions(await keeper.generate(REQUESTS)) == [(4,)]
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
        assert (keeper.is_paused, keeper.is_serving) == (True, False)
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
        assert versions(await keeper.generate(REQUESTS)) == [(3,)]
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


class FlawedEngine(FragileEngine):
    """Well by its own word; what it is asked for fails, or is refused when its prompt is `BAD`."""

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        if any(one.input_ids == BAD for one in requests):
            raise RequestRefusedError("too long")
        return super().generate(requests)

    def is_healthy(self) -> bool:
        return True


BAD = (9, 9)


def asks(*prompts: tuple[int, ...]) -> tuple[GenerationRequest, ...]:
    return tuple(
        GenerationRequest(rid=str(index), input_ids=prompt, max_new_tokens=1) for index, prompt in enumerate(prompts)
    )


class FlawedWorkshop(Workshop):
    """Starts flawed engines; the first `broken` of them make nothing, and say that they are well."""

    def __init__(self, broken: int = 0) -> None:
        super().__init__()
        self.broken = broken

    def start(self, directory: Path, version: int) -> FragileEngine:
        self.starts += 1
        self.engines.append(FlawedEngine(version))
        self.engines[-1].is_broken = self.starts <= self.broken
        return self.engines[-1]


async def fails(keeper: EngineKeeper, requests: tuple[GenerationRequest, ...], times: int) -> None:
    for _ in range(times):
        with pytest.raises(EngineError):
            await keeper.generate(requests)
        await keeper.heal()


def test_an_engine_that_fails_every_batch_is_replaced_although_it_says_that_it_is_well() -> None:
    async def story() -> None:
        workshop = FlawedWorkshop(broken=1)
        keeper = await loaded(workshop)
        await fails(keeper, REQUESTS, MAX_FAILURES - 1)
        assert workshop.starts == 1
        await fails(keeper, REQUESTS, 1)
        assert workshop.starts == 2
        assert versions(await keeper.generate(REQUESTS)) == [(3,)]

    run(story())


def test_a_machine_whose_engines_all_fail_every_batch_is_given_up_with_the_cause() -> None:
    async def story() -> None:
        workshop = FlawedWorkshop(broken=99)
        keeper = await loaded(workshop)
        with pytest.raises(EngineDeadError, match="3 times in a row, at last: broken"):
            await fails(keeper, REQUESTS, 100)
        assert workshop.starts == MAX_RESTARTS + 1

    run(story())


def test_failures_with_a_good_batch_between_them_replace_nothing() -> None:
    async def story() -> None:
        workshop = FlawedWorkshop()
        keeper = await loaded(workshop)
        for is_broken in (True, False) * (2 * MAX_FAILURES):
            workshop.engines[0].is_broken = is_broken
            if is_broken:
                await fails(keeper, REQUESTS, 1)
            else:
                await keeper.generate(REQUESTS)
        assert workshop.starts == 1

    run(story())


def test_one_bad_request_takes_none_of_its_sisters_with_it() -> None:
    async def story() -> None:
        workshop = FlawedWorkshop()
        keeper = await loaded(workshop)
        for _ in range(3 * MAX_FAILURES):
            assert versions(await keeper.generate(asks((1,), BAD, (2,)))) == [(3,), None, (3,)]
            await keeper.heal()
        assert workshop.starts == 1

    run(story())


class BusyEngine(FlawedEngine):
    """Has a long batch in hand until it is released; weights do not load."""

    def __init__(self, version: int, release: threading.Event) -> None:
        super().__init__(version)
        self._release = release

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        if requests == REQUESTS:
            self._release.wait(20)
        return super().generate(requests)

    def update_weights_from_disk(self, path: str, version: int) -> None:
        self._release.wait(20)
        raise EngineError("failed midway")


def test_bad_requests_replace_no_engine_that_is_at_work_on_others() -> None:
    release, workshop = threading.Event(), FlawedWorkshop()

    def start(directory: Path, version: int) -> FragileEngine:
        workshop.start(directory, version)
        return BusyEngine(version, release)

    async def story() -> None:
        keeper = EngineKeeper(start, threads=4)
        await keeper.load(manifest(3), Path("w"))
        working = asyncio.create_task(keeper.generate(REQUESTS))
        await asyncio.sleep(0.05)
        await fails(keeper, asks(BAD, BAD), 3 * MAX_FAILURES)
        release.set()
        assert (versions(await working), workshop.starts) == ([(3,)], 1)

    run(story())


def test_a_machine_that_makes_nothing_of_whatever_it_is_given_is_given_up() -> None:
    async def story() -> None:
        keeper = await loaded(FlawedWorkshop())
        with pytest.raises(EngineDeadError, match="at last: too long"):
            await fails(keeper, asks(BAD), 100)

    run(story())


def test_what_runs_during_a_load_that_fails_is_thrown_away_and_what_begins_waits_for_the_fresh_engine() -> None:
    release, workshop = threading.Event(), FlawedWorkshop()

    def start(directory: Path, version: int) -> FragileEngine:
        fresh = workshop.start(directory, version)
        return BusyEngine(version, release) if workshop.starts == 1 else fresh

    async def story() -> None:
        keeper = EngineKeeper(start, threads=4)
        await keeper.load(manifest(3), Path("w"))
        running = asyncio.create_task(keeper.generate(REQUESTS))
        await asyncio.sleep(0.05)
        loading = asyncio.create_task(keeper.load(manifest(4), Path("w")))
        await asyncio.sleep(0.05)
        assert not keeper.is_serving
        begun = asyncio.create_task(keeper.generate(asks((1,))))
        release.set()
        with pytest.raises(EngineError, match="thrown away"):
            await running
        assert versions(await begun) == [(4,)]
        await loading
        assert (workshop.starts, keeper.loaded, keeper.is_serving) == (2, manifest(4), True)

    run(story())
