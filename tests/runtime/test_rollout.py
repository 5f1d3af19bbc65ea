"""The agent against a real coordinator; its engine solves every prompt, at a speed that each story chooses."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import (
    INTERRUPTION,
    REBALANCE,
    Admit,
    DrainRequest,
    LeaseRequest,
    Notice,
    Register,
    Renewal,
    Startup,
    StopRequest,
)
from hexcloud.domain.plan import Role
from hexcloud.ports import Engine
from hexcloud.runtime import rollout, rollout_worker
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.probe import LinkCap, ProbeServer
from hexcloud.runtime.rollout import LEAVE_S, Ending, Equipment, RolloutAgent
from hexcloud.runtime.rollout_engine import EngineKeeper, StartEngine
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer
from hexcloud.runtime.rollout_weights import WeightFolder

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
Tell = Callable[[Story], None]
Publish = Callable[[Coordinator, int], None]
Engines = Callable[[float], StartEngine]
MakeAgent = Callable[[CoordinatorLink, StartEngine], RolloutAgent]
NODE = NodeId("run.rollout.0")
TOKEN_S = 0.5
"""Of an engine that is so slow that what it is asked for is under way for seconds."""


@pytest.fixture
def make_agent(rollout_spec: NodeSpec, tmp_path: Path) -> MakeAgent:
    def make(link: CoordinatorLink, start: StartEngine) -> RolloutAgent:
        equipment = Equipment(
            link=link,
            keeper=EngineKeeper(start, threads=20),
            folder=WeightFolder(tmp_path / "weights", LinkCap()),
            cap=LinkCap(),
            address="127.0.0.1:1",
        )
        return RolloutAgent(rollout_spec, equipment)

    return make


async def until(is_reached: Callable[[], bool], within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not is_reached():  # noqa: ASYNC110 - the coordinator has no event for what a test waits for
            await asyncio.sleep(0.01)


async def ended(running: "asyncio.Task[Ending]", within_s: float = 15.0) -> Ending:
    async with asyncio.timeout(within_s):
        return await running


def held(coordinator: Coordinator) -> int:
    """Leases that the coordinator believes are being worked on."""
    return coordinator.view().nodes[0].running if coordinator.view().nodes else 0


async def train(coordinator: Coordinator, publish: Publish, steps: int) -> None:
    for _ in range(steps):
        batch = await coordinator.batch(wait_s=15)
        assert batch.groups
        publish(coordinator, batch.version + 1)


def test_a_run_of_some_steps_is_fed_under_eta_and_ends_when_the_run_does(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        running = asyncio.create_task(make_agent(link, engines(0.002)).run())
        await train(coordinator, publish, 6)
        view = coordinator.view()
        assert view.trained_samples == 6 * 16
        assert max(view.staleness_histogram) <= 2
        assert view.reward == 0.0  # of the report, which this trainer leaves out
        await until(lambda: coordinator.view().nodes[0].version == 6)
        coordinator.stop(StopRequest(reason="enough"))
        assert await ended(running) is Ending.STOPPED
        assert Ending.STOPPED.exit_code == 0

    tell_rollout(story)


def test_an_interrupted_node_gives_its_leases_back_with_their_tokens(
    tell_rollout: Tell,
    publish: Publish,
    engines: Engines,
    make_agent: MakeAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout, "LAST_WORDS_S", 60.0)  # for a busy machine; they take some hundredths

    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        agent = make_agent(link, engines(TOKEN_S))
        running = asyncio.create_task(agent.run())
        await until(lambda: held(coordinator) == 16)
        await asyncio.sleep(3 * TOKEN_S)
        agent.interrupt()
        assert await ended(running) is Ending.INTERRUPTED
        # Everything waits again, so the same prompts come back under the next attempt, to be continued: nobody waited
        # for the engine's own end.
        ask = LeaseRequest(node_id=NODE, epoch=0, version=0, want=16)
        again = [(lease.attempt, bool(lease.prefix)) for lease in coordinator.lease(ask).leases]
        assert again == [(1, True)] * 16

    tell_rollout(story)


def test_a_drained_node_finishes_what_it_holds_and_leaves(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        running = asyncio.create_task(make_agent(link, engines(0.05)).run())
        await until(lambda: held(coordinator) == 16)
        coordinator.drain(DrainRequest(node_id=NODE))
        assert await ended(running) is Ending.DRAINED
        (node,) = coordinator.view().nodes
        assert node.drained
        assert node.running == 0

    tell_rollout(story)


def test_a_lapsed_spend_lease_ends_a_node_that_hears_nobody(
    make_coordinator: Callable[[], Coordinator],
    publish: Publish,
    engines: Engines,
    make_agent: MakeAgent,
    find_pointer: FindPointer,
) -> None:
    async def scene() -> None:
        coordinator = make_coordinator()
        publish(coordinator, 0)
        async with CoordinatorLink(find_pointer, "node-token") as link:
            async with serving(coordinator, "run-secret"):
                running = asyncio.create_task(make_agent(link, engines(0.005)).run())
                await until(lambda: held(coordinator) > 0)
                coordinator.renew(Renewal(run_until_s=time.time() + 3.0))
                await asyncio.sleep(1.0)  # it hears of it with its next heartbeat
            assert await ended(running) is Ending.LAPSED

    asyncio.run(scene())


def test_a_revoked_node_leaves_with_an_error(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        running = asyncio.create_task(make_agent(link, engines(0.05)).run())
        await until(lambda: held(coordinator) > 0)
        coordinator.admit(Admit(node_id=NodeId("other"), token_sha256="0" * 64, revoke=(NODE,)))
        assert await ended(running) is Ending.REVOKED
        assert Ending.REVOKED.exit_code == 1

    tell_rollout(story)


def test_a_node_waits_for_its_admission(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        admitted = coordinator.access
        admitted.revoke(NODE)
        running = asyncio.create_task(make_agent(link, engines(0.005)).run())
        await asyncio.sleep(0.2)
        assert coordinator.view().nodes == ()
        admitted.admit(NODE, token_sha256("node-token"))
        await until(lambda: held(coordinator) > 0)
        running.cancel()

    tell_rollout(story)


def test_a_node_follows_the_coordinator_to_its_new_address(
    make_coordinator: Callable[[], Coordinator],
    publish: Publish,
    engines: Engines,
    make_agent: MakeAgent,
    find_pointer: FindPointer,
) -> None:
    async def scene() -> None:
        coordinator = make_coordinator()
        publish(coordinator, 0)
        async with CoordinatorLink(find_pointer, "node-token") as link:
            async with serving(coordinator, "run-secret"):
                running = asyncio.create_task(make_agent(link, engines(0.002)).run())
                await train(coordinator, publish, 1)
            async with serving(coordinator, "run-secret"):
                await train(coordinator, publish, 3)
                coordinator.stop(StopRequest(reason="enough"))
                assert await ended(running) is Ending.STOPPED

    asyncio.run(scene())


def test_an_engine_that_never_starts_ends_the_node_with_an_error(
    tell_rollout: Tell, publish: Publish, make_agent: MakeAgent
) -> None:
    def start(_directory: Path, _version: int) -> Engine:
        raise EngineError("no such thing")

    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        running = asyncio.create_task(make_agent(link, start).run())
        assert await ended(running) is Ending.ENGINE_DEAD
        assert Ending.ENGINE_DEAD.exit_code == 1

    tell_rollout(story)


def test_an_engine_that_is_well_and_makes_nothing_ends_the_node_and_says_why(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(directory: Path, version: int) -> Engine:
        engine = engines(0.0)(directory, version)

        def failing(_requests: object) -> object:
            raise EngineError("device-side assert")

        monkeypatch.setattr(engine, "generate", failing)
        return engine

    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        with capture_logs() as logs:
            assert await ended(asyncio.create_task(make_agent(link, start).run())) is Ending.ENGINE_DEAD
        (reason,) = (line["reason"] for line in logs if line["event"] == "engine_dead")
        assert reason.endswith("at last: device-side assert")

    monkeypatch.setattr(rollout_worker, "RETRY_S", 0.01)
    tell_rollout(story)


def test_a_node_measures_the_links_it_is_told_to(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        peer = ProbeServer()
        await peer.start()
        head = Register(node_id=coordinator.spec.node_id, role=Role.TRAINER, slots=0, address=f"127.0.0.1:{peer.port}")
        coordinator.register(head)
        running = asyncio.create_task(make_agent(link, engines(0.01)).run())
        await until(lambda: bool(coordinator.view().links))
        assert coordinator.view().links[0].target == head.address
        running.cancel()
        await peer.close()

    tell_rollout(story)


def test_a_machine_that_will_go_finishes_what_it_can_and_gives_back_the_rest_within_the_notice(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        agent = make_agent(link, engines(0.5))
        running = asyncio.create_task(agent.run())
        await until(lambda: held(coordinator) == 16)
        told_at_s = time.time()
        agent.hear(Notice(cause=INTERRUPTION, until_s=told_at_s + LEAVE_S + 0.7, detail="terminate"))
        await until(lambda: coordinator.view().nodes[0].notice is not None)
        assert held(coordinator) == 16, "work goes on"
        assert await ended(running) is Ending.INTERRUPTED
        assert time.time() - told_at_s < LEAVE_S
        assert held(coordinator) == 0
        assert coordinator.view().outstanding == 16, "all that was begun is parked for others"

    tell_rollout(story)


def test_a_recommendation_to_move_is_passed_on_and_changes_nothing(
    tell_rollout: Tell, publish: Publish, engines: Engines, make_agent: MakeAgent
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        agent = make_agent(link, engines(0.002))
        running = asyncio.create_task(agent.run())
        await until(lambda: held(coordinator) > 0)
        agent.hear(Notice(cause=REBALANCE, until_s=time.time()))
        await until(lambda: coordinator.view().nodes[0].notice is not None)
        await train(coordinator, publish, 3)
        notice = coordinator.view().nodes[0].notice
        assert notice is not None and notice.cause == REBALANCE
        assert not running.done()
        coordinator.stop(StopRequest(reason="enough"))
        await ended(running)

    tell_rollout(story)


def test_how_the_machine_came_up_is_part_of_its_first_word(
    tell_rollout: Tell, publish: Publish, engines: Engines, rollout_spec: NodeSpec, tmp_path: Path
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        keeper, folder = EngineKeeper(engines(0.002), threads=20), WeightFolder(tmp_path / "weights", LinkCap())
        came_up = Startup(setup_s=41.0, program_s=1.5)
        equipment = Equipment(link, keeper, folder, LinkCap(), "127.0.0.1:1", lambda: came_up)
        running = asyncio.create_task(RolloutAgent(rollout_spec, equipment).run())
        await until(lambda: bool(coordinator.view().nodes))
        assert coordinator.view().nodes[0].startup == came_up
        coordinator.stop(StopRequest(reason="enough"))
        await ended(running)

    tell_rollout(story)
