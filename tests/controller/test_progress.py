from collections.abc import Callable

from hexcloud.controller.memory import Progress
from hexcloud.controller.progress import MAX_TRAINER_STARTS, count_loss, dropouts, never_up
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.command import Emulation
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, RunId
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
POLICY = Policy(target_samples_per_s=20.0)


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def trainers(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.role is Role.TRAINER]


def events(sim: Simulation, kind: str) -> list[Event]:
    return [event for _, event in sim.store.events(sim.run.id) if event.kind == kind]


def state(sim: Simulation) -> tuple[RunState, str]:
    run = sim.store.run(sim.run.id)
    assert run is not None
    return run.state, run.reason


def losing_trainers(controller_of: ControllerOf, *at_s: float) -> Simulation:
    """Return a simulation whose trainer is taken at these moments."""
    first = Simulation(POLICY)
    turns(first, controller_of(first), 1)
    offer_id: OfferId = trainers(first)[0].offer_id
    return Simulation(POLICY, Script(losses=tuple(Loss(at, LossKind.PREEMPT, offer_id=offer_id) for at in at_s)))


def stalled(controller_of: ControllerOf) -> tuple[Simulation, Controller]:
    """Return a run that trained some steps and from now on trains no more, though all its machines are well."""
    sim = Simulation(POLICY)
    controller = controller_of(sim)
    turns(sim, controller, 60)
    for machine in sim.cloud.machines.values():
        stuck = Emulation(clock_scale=1.0, samples_per_s=1e-9)
        machine.spec = machine.spec.model_copy(update={"emulation": stuck})
    return sim, controller


def test_a_trainer_lost_three_times_with_nothing_new_between_ends_the_run(controller_of: ControllerOf) -> None:
    sim = losing_trainers(controller_of, 128.0, 253.0, 378.0, 503.0)
    assert controller_of(sim).run_until_done() is RunState.FAILED
    assert len(trainers(sim)) == 3
    assert "the trainer was lost 3 times without a new checkpoint" in state(sim)[1]
    assert f"nodes/{trainers(sim)[-1].id}/node.log" in state(sim)[1]
    assert not sim.cloud.running()


def test_losses_with_steps_between_them_are_made_good_for_ever(controller_of: ControllerOf) -> None:
    sim = losing_trainers(controller_of, 300.0, 800.0, 1300.0, 1800.0)
    turns(sim, controller_of(sim), 400)
    assert len(trainers(sim)) == 5
    assert state(sim)[0] is RunState.RUNNING


def test_how_long_a_loss_of_the_trainer_kept_training_is_said_once(controller_of: ControllerOf) -> None:
    sim = losing_trainers(controller_of, 300.0)
    turns(sim, controller_of(sim), 200)
    [lost] = [event for event in events(sim, "node_lost") if event.fields["role"] == "trainer"]
    [told] = events(sim, "trainer_recovered")
    assert told.node == trainers(sim)[-1].id != lost.node
    assert told.fields["took_s"] == told.wall_s - lost.wall_s > 0
    assert "after the loss of trainer-0" in told.text


def test_a_repeated_version_is_nothing_new() -> None:
    node = Node(
        id=NodeId("n"),
        run_id=Simulation(POLICY).run.id,
        slot="trainer-0",
        attempt=0,
        role=Role.TRAINER,
        offer_id=OfferId("o"),
        status=NodeStatus.GONE,
        requested_at_s=0.0,
    )
    progress = Progress()
    for best, losses in (((0, 5), 1), ((0, 5), 2), ((0, 6), 1), ((0, 6), 2), ((20, 21), 1), ((20, 21), 2)):
        progress.best = best
        count_loss(node, progress, 0.0)
        assert progress.losses == losses


def test_a_run_that_trains_no_more_is_told_and_then_ended(controller_of: ControllerOf) -> None:
    sim, controller = stalled(controller_of)
    began_s = sim.clock.wall_s()
    assert controller.run_until_done() is RunState.FAILED
    [told] = events(sim, "stalled")
    [stopping] = events(sim, "run_stopping")
    bound_s = 60 * 256 / 20
    assert abs(told.wall_s - began_s - bound_s) < 30
    assert abs(stopping.wall_s - began_s - 2 * bound_s) < 30
    assert state(sim)[1].startswith("no step for ")
    assert not sim.cloud.running()


def test_a_run_that_has_not_begun_or_that_trains_does_not_stall(controller_of: ControllerOf) -> None:
    sim = Simulation(POLICY)
    turns(sim, controller_of(sim), 500)
    assert sim.cloud.training.version > 0
    assert not events(sim, "stalled")


def test_a_trainer_that_never_comes_up_again_and_again_ends_the_run_with_the_reason(
    controller_of: ControllerOf,
) -> None:
    sim = Simulation(POLICY)
    controller = controller_of(sim)
    for _ in range(3000):
        turn = controller.reconcile_once()
        for machine in sim.cloud.machines.values():
            if machine.is_head:
                machine.boots_s = 1e12
        if turn.state in {RunState.DONE, RunState.FAILED}:
            break
        sim.clock.sleep(5.0)
    ended, reason = state(sim)
    assert ended is RunState.FAILED
    assert f"the trainer was rented {MAX_TRAINER_STARTS} times and never came up" in reason
    assert f"last on {trainers(sim)[-1].offer_id}: {trainers(sim)[-1].cause}" in reason
    assert len(trainers(sim)) == MAX_TRAINER_STARTS
    assert not sim.cloud.running()


def trainer(attempt: int, cause: str, ready_at_s: float | None = None, rank: int = 0, gang: int = 1) -> Node:
    return Node(
        id=NodeId(f"sim.trainer-0.{attempt}.{rank}"),
        run_id=RunId("sim"),
        slot=SlotName("trainer-0"),
        attempt=attempt,
        role=Role.TRAINER,
        offer_id=OfferId("acme/r/z/t/spot"),
        status=NodeStatus.GONE,
        requested_at_s=float(attempt),
        ready_at_s=ready_at_s,
        cause=cause,
        rank=rank,
        gang=gang,
    )


def test_only_gangs_that_were_paid_for_and_never_came_up_count_and_only_in_a_row() -> None:
    late = "late in setup: not through after 300 s"
    failed = [trainer(attempt, late) for attempt in range(MAX_TRAINER_STARTS)]
    assert never_up(failed)
    assert never_up(failed[1:]) is None
    assert never_up([trainer(attempt, "sold out: no capacity") for attempt in range(20)]) is None
    assert never_up([trainer(attempt, "released before it was ready") for attempt in range(20)]) is None
    assert never_up([*failed[1:], trainer(50, "silent for 61 s", ready_at_s=51.0), trainer(60, late)]) is None


def test_a_gang_counts_once_however_many_of_its_members_never_came() -> None:
    gangs = [
        trainer(attempt, "vanished from the provider", rank=rank, gang=4)
        for attempt in range(MAX_TRAINER_STARTS - 1)
        for rank in range(4)
    ]
    assert never_up(gangs) is None


def test_a_machine_that_never_joins_a_gang_at_work_is_no_trainer_that_never_came_up() -> None:
    joiners = [trainer(attempt, "late in register: no heartbeat", rank=1) for attempt in range(MAX_TRAINER_STARTS)]
    assert all(node.is_joiner for node in joiners)
    assert never_up(joiners) is None


def joiner(attempt: int, cause: str, stayed_s: float | None = None) -> Node:
    """A machine that joined a gang a second after it was asked for; None: it is still there."""
    gone_at_s = None if stayed_s is None else attempt + 1.0 + stayed_s
    node = trainer(attempt, cause, ready_at_s=attempt + 1.0, rank=1)
    return node.model_copy(
        update={"gone_at_s": gone_at_s, "status": NodeStatus.READY if gone_at_s is None else node.status}
    )


def test_machines_that_were_lost_as_they_joined_a_gang_count_in_a_row() -> None:
    lost = tuple(joiner(attempt, "vanished from the provider", stayed_s=60.0) for attempt in (0, 100, 200))
    assert dropouts(lost, 1000.0, lasts_s=300.0) == lost
    assert dropouts(lost, 1000.0, lasts_s=60.0) == ()
    ours = joiner(50, "released", stayed_s=60.0)
    young, old = joiner(150, ""), joiner(150, "", stayed_s=400.0)
    never = trainer(150, "late in register: no heartbeat", rank=1)
    assert dropouts((*lost, ours, never), 1000.0, lasts_s=300.0) == lost
    assert dropouts((*lost, young), 400.0, lasts_s=300.0) == lost
    assert dropouts((*lost, young), 500.0, lasts_s=300.0) == lost[2:], "it has shown by now that machines can join"
    assert dropouts((*lost, old), 1000.0, lasts_s=300.0) == lost[2:]


def test_a_run_that_never_trains_its_first_step_is_ended(controller_of: ControllerOf) -> None:
    sim = Simulation(POLICY)
    controller = controller_of(sim)
    ended = RunState.RUNNING
    for _ in range(3000):
        ended = controller.reconcile_once().state
        for machine in sim.cloud.machines.values():
            if machine.is_rollout():
                machine.boots_s = 1e12
        if ended in {RunState.DONE, RunState.FAILED}:
            break
        sim.clock.sleep(5.0)
    assert ended is RunState.FAILED
    assert "the first step was not trained within" in state(sim)[1]
    assert not sim.cloud.running()
