"""One worker, called by the test as the agent calls it, against a real coordinator."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError, RequestRefusedError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.generation import FinishKind, Generation, GenerationRequest
from hexcloud.domain.messages import LeaseRenewal, LeaseRequest, Register
from hexcloud.domain.plan import Role
from hexcloud.ports import Engine
from hexcloud.runtime import rollout_work, rollout_worker
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_engine import EngineKeeper, StartEngine
from hexcloud.runtime.rollout_follow import WeightFollower
from hexcloud.runtime.rollout_link import CoordinatorLink
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.rollout_wire import Wire
from hexcloud.runtime.rollout_worker import LeaseWorker

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
Tell = Callable[[Story], None]
Publish = Callable[[Coordinator, int], None]
Engines = Callable[[float], StartEngine]
NODE = NodeId("run.rollout.0")


@pytest.fixture
def rollout_spec(rollout_spec: NodeSpec) -> NodeSpec:
    """A worker alone sends no heartbeats, and here its node is not to be taken for a silent one."""
    return rollout_spec.model_copy(update={"heartbeat_s": 5.0})


@asynccontextmanager
async def at_work(link: CoordinatorLink, spec: NodeSpec, start: StartEngine) -> AsyncIterator[LeaseWorker]:
    """A registered worker whose engine has the newest weights."""
    orders = await link.register(Register(node_id=NODE, role=Role.ROLLOUT, slots=16, address="127.0.0.1:1"))
    assert orders.latest is not None
    keeper = EngineKeeper(start, threads=20)
    folder = WeightFolder(Path(spec.run_dir) / "weights", LinkCap())
    follower = WeightFollower(WeightWay(link, folder), folder, keeper, Wire())
    await keeper.load(orders.latest, await folder.fetch(orders.latest, link.weights))
    worker = LeaseWorker(spec, link, keeper, follower)
    working = asyncio.create_task(worker.work())
    worker.wake(is_registered=True)
    try:
        yield worker
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        keeper.close()


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_reached():  # noqa: ASYNC110 - there is no event for what a test waits for
            await asyncio.sleep(0.01)


def test_all_slots_are_filled_and_reported(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        async with at_work(link, rollout_spec, engines(0.1)) as worker:
            await until(lambda: worker.heartbeat().running == 16)
            beat = worker.heartbeat()
            assert (beat.epoch, beat.version, len(beat.leases), beat.is_paused) == (0, 0, 16, False)

    tell_rollout(story)


def test_nothing_is_asked_for_before_the_node_is_registered(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        async with at_work(link, rollout_spec, engines(0.0)) as worker:
            worker.wake(is_registered=False)
            await asyncio.sleep(0.1)
            before = worker.heartbeat().generated_tokens
            await asyncio.sleep(0.1)
            assert worker.heartbeat().generated_tokens == before

    tell_rollout(story)


def test_work_that_does_not_end_in_time_is_given_back_and_nothing_is_lost(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        async with at_work(link, rollout_spec, engines(0.3)) as worker:
            await until(lambda: worker.heartbeat().running == 16)
            await worker.finish(within_s=1.0)
            assert worker.heartbeat().leases == ()
        ask = LeaseRequest(node_id=NODE, epoch=0, version=0, want=16)
        again = coordinator.lease(ask).leases
        assert len(again) == 16
        assert all(lease.prefix for lease in again)

    tell_rollout(story)


def test_leases_that_ended_elsewhere_are_dropped_without_a_word(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        async with at_work(link, rollout_spec, engines(0.1)) as worker:
            await until(lambda: worker.heartbeat().running == 16)
            mine = [lease for lease, _ in worker.heartbeat().leases]
            worker.is_leaving = True
            await worker.abort(tuple(mine))
            await until(lambda: worker.heartbeat().leases == ())
        # They were neither delivered nor given back: for the coordinator this node still holds them.
        assert coordinator.lease(LeaseRequest(node_id=NODE, epoch=0, version=0, want=16)).leases == ()

    tell_rollout(story)


def test_a_generation_that_is_not_finite_is_given_back_and_the_others_are_delivered(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        start, spoilt, asked = engines(0.0), list[str](), set[str]()

        def start_spoiling(directory: Path, version: int) -> Engine:
            engine = start(directory, version)
            generate = engine.generate

            def spoiling(requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
                asked.update(one.rid for one in requests)
                first, *others = generate(requests)
                if spoilt:
                    return (first, *others)
                spoilt.append(first.rid)
                logprobs = (float("-inf"),) * len(first.tokens)
                return (first.model_copy(update={"logprobs": logprobs}), *others)

            monkeypatch.setattr(engine, "generate", spoiling)
            return engine

        async with at_work(link, rollout_spec, start_spoiling) as worker:
            await until(lambda: bool(coordinator.batch_now().groups))
            await until(lambda: worker.heartbeat().leases == ())
        again = f"{spoilt[0].rpartition('.')[0]}.1"
        assert again in asked

    tell_rollout(story)


def test_one_request_that_the_engine_refuses_is_given_back_and_its_group_is_delivered(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        start, refused, asked = engines(0.0), list[str](), set[str]()

        def start_refusing(directory: Path, version: int) -> Engine:
            engine = start(directory, version)
            generate = engine.generate

            def refusing(requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
                asked.update(one.rid for one in requests)
                refused.extend(() if refused else (requests[0].rid,))
                if refused[0] in (one.rid for one in requests):
                    raise RequestRefusedError("too long")
                return generate(requests)

            monkeypatch.setattr(engine, "generate", refusing)
            return engine

        async with at_work(link, rollout_spec, start_refusing):
            await until(lambda: bool(coordinator.batch_now().groups))
        again = {rid for rid in asked if not rid.endswith(".0")}
        assert again <= {f"{refused[0].rpartition('.')[0]}.1"}, "its sisters were made at the first attempt"

    tell_rollout(story)


def test_long_work_renews_its_leases(
    tell_rollout: Tell,
    publish: Publish,
    engines: Engines,
    rollout_spec: NodeSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        async with at_work(link, rollout_spec, engines(0.3)) as worker:
            await until(lambda: worker.heartbeat().running == 16)
            renewed: list[int] = []
            call = link._call

            async def noted(method: str, path: str, message: Frozen | bytes | None = None) -> httpx.Response:
                if path == "/leases/renew":
                    assert isinstance(message, LeaseRenewal)
                    renewed.append(len(message.leases))
                assert path != "/partials", "a renewal sends no tokens"
                return await call(method, path, message)

            monkeypatch.setattr(link, "_call", noted)
            deadlines = dict(coordinator._admission.leases._deadline_s)
            await until(lambda: bool(renewed))
            assert renewed[0] == 16
            await until(
                lambda: all(coordinator._admission.leases._deadline_s[one] > deadlines[one] for one in deadlines)
            )

    monkeypatch.setattr(rollout_worker, "RENEW_S", 0.1)
    tell_rollout(story)


def test_a_long_response_is_committed_in_parts_and_continued_by_another_worker_token_by_token(
    tell_rollout: Tell,
    publish: Publish,
    engines: Engines,
    rollout_spec: NodeSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_parts(version: int, parts: threading.Semaphore) -> StartEngine:
        def start(directory: Path, _version: int) -> Engine:
            engine = engines(0.0)(directory, version)
            whole = engine.generate

            def generate(requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
                if not parts.acquire(timeout=20):
                    raise EngineError("the machine is lost")
                return tuple(
                    made.model_copy(
                        update={
                            "tokens": made.tokens[: asked.max_new_tokens],
                            "logprobs": made.logprobs[: asked.max_new_tokens],
                            "versions": made.versions[: asked.max_new_tokens],
                            "finish": FinishKind.LENGTH if len(made.tokens) > asked.max_new_tokens else made.finish,
                        }
                    )
                    for asked, made in zip(requests, whole(requests), strict=True)
                )

            monkeypatch.setattr(engine, "generate", generate)
            return engine

        return start

    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        monkeypatch.setattr(rollout_work, "COMMIT_TOKENS", 2)
        publish(coordinator, 0)
        groups, spec = coordinator._admission._groups, rollout_spec.model_copy(update={"slots": 4, "group_size": 4})
        async with at_work(link, spec, in_parts(0, threading.Semaphore(1))):
            await until(lambda: any(group.parked for group in groups.live.values()))
        parked = {(group.id, index): one for group in groups.live.values() for index, one in group.parked.items()}
        coordinator._admission.leave(NODE)  # it is silent for good: what it had in hand is lost, what it committed not
        async with at_work(link, spec, in_parts(0, threading.Semaphore(1000))):
            await until(lambda: coordinator._admission.has_batch)
        made = {(one.group, one.index): one for group in coordinator.batch_now().groups for one in group.samples}
        continued = [(parked[place], made[place]) for place in parked if place in made]
        assert continued
        for part, sample in continued:
            assert sample.tokens[:2] == part.opened().tokens and part.length == 2
            assert sample.logprobs[:2] == part.opened().logprobs
            assert len(sample.versions) == len(sample.logprobs) == len(sample.tokens) > 2

    tell_rollout(story)
