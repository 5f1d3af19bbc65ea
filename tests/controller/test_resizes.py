"""A gang at work becomes larger and smaller machine by machine: one rent each, no step lost, and never its head."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import CapacityError, EngineError
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.ledger import CostKind
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.world import GangPlan
from hexcloud.estimate.resize import resize_s
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.simulator.cloud import Habits, Loss, LossKind
from hexcloud.simulator.faults import Crash, Fault
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market
from tests.controller.test_laws import History, histories, live_through

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[..., Ports]
POLICY = Policy(objective=Objective.MAX_THROUGHPUT, max_usd_per_hour=80.0, min_dwell_s=60.0)
"""In the small market this buys two trainers and two rollout nodes; while all is 20 % cheaper, one trainer more."""
POLL_S, TURN_S = 5.0, 10.0
CHEAPER_S, DEARER_S, END_S = 300.0, 600.0, 840.0
HABITS = Habits(boot_s=60.0)


def prices(at_s: float, factor: float) -> Iterable[PriceStep]:
    return (PriceStep(offer.id, at_s, factor * offer.usd_per_hour) for offer in small_market().offers)


def simulation(habits: Habits = HABITS, faults: tuple[Fault, ...] = (), losses: tuple[Loss, ...] = ()) -> Simulation:
    moves = (*prices(CHEAPER_S, 0.8), *prices(DEARER_S, 1.0))
    return Simulation(POLICY, Script(prices=moves, habits=habits, faults=faults, losses=losses))


def until(sim: Simulation, controller: Controller, at_s: float) -> None:
    while sim.clock.now_s() < sim.start_s + at_s:
        controller.reconcile_once()
        sim.clock.sleep(POLL_S)


def trainers(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.role is Role.TRAINER]


def standing(sim: Simulation) -> list[Node]:
    return [node for node in trainers(sim) if node.status is not NodeStatus.GONE]


def steps(sim: Simulation) -> int:
    return sim.cloud.training.version


def test_a_gang_grows_by_the_machines_that_it_lacks_and_loses_no_step(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    until(sim, controller, CHEAPER_S)
    assert [(node.rank, node.gang) for node in trainers(sim)] == [(0, 2), (1, 2)]
    launches, before = sim.faults.calls["launch"], steps(sim)
    until(sim, controller, DEARER_S)
    assert [node.status for node in trainers(sim)] == [NodeStatus.READY] * 3
    joiner = trainers(sim)[2]
    assert joiner.is_joiner and sim.cloud.gang.world >= {joiner.id}
    assert sim.faults.calls["launch"] == launches + 1 and "terminate" not in sim.faults.calls
    assert sim.cloud.training.epoch == 0 and steps(sim) > before
    (moved,) = [event for _, event in sim.store.history if event.kind == "replan"][1:]
    assert moved.fields["verdict"] == "moved"


def test_a_gang_shrinks_by_a_member_that_handed_on_its_share_first(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    until(sim, controller, DEARER_S)
    joiner, before = trainers(sim)[2], steps(sim)
    until(sim, controller, DEARER_S + POLL_S)
    assert trainers(sim)[2].status is NodeStatus.DRAINING and joiner.id in sim.cloud.gang.world
    assert "terminate" not in sim.faults.calls, "it has yet to hand on its share"
    until(sim, controller, END_S)
    assert [node.id for node in standing(sim)] == [node.id for node in trainers(sim)[:2]], "the head, and the first"
    assert sim.cloud.machines[joiner.id].cause == "terminated" and sim.faults.calls["terminate"] == 1
    assert sim.cloud.training.epoch == 0 and steps(sim) > before


def test_a_member_that_is_ended_before_it_handed_on_would_have_cost_steps(controller_of: ControllerOf) -> None:
    sim = simulation()
    until(sim, controller_of(sim), DEARER_S)
    sim.provisioner.terminate(trainers(sim)[2].id)
    sim.clock.sleep(HABITS.stop_s + 1.0)
    sim.cloud.advance()
    assert sim.cloud.training.epoch == 1 and steps(sim) == sim.cloud.training.checkpoint_version


def test_the_ledger_bills_each_member_for_its_own_time(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    until(sim, controller, END_S)
    controller.reconcile_once()
    rent = {node.id: 0.0 for node in sim.store.nodes(sim.run.id)}
    for _, entry in sim.store.entries:
        rent[entry.node_id] += entry.usd if entry.kind is CostKind.COMPUTE else 0.0
    joiner = trainers(sim)[2]
    machine = sim.cloud.machines[joiner.id]
    assert machine.ended_s is not None and joiner.gone_at_s is not None
    own_usd = sim.market.usd(machine.offer.id, machine.launched_s, machine.ended_s)
    assert own_usd <= rent[joiner.id] <= own_usd + POLL_S * 2 / 3600 * 17.0
    assert sim.billed_usd() - 1e-9 <= sum(rent.values()) <= 1.05 * sim.billed_usd()


def test_where_a_gang_is_rented_as_one_it_is_replaced_whole(controller_of: ControllerOf) -> None:
    sim = simulation(Habits(boot_s=60.0, is_elastic=False))
    controller = controller_of(sim)
    until(sim, controller, DEARER_S - POLL_S)
    old, new = trainers(sim)[:2], trainers(sim)[2:]
    assert all(node.status is NodeStatus.GONE for node in old)
    assert [(node.rank, node.gang, node.status) for node in new] == [(rank, 3, NodeStatus.READY) for rank in range(3)]
    assert sim.cloud.training.epoch == 1, "it went on from its checkpoint"


def test_a_joiner_that_is_refused_leaves_the_gang_at_work(controller_of: ControllerOf) -> None:
    sim = simulation(faults=(Fault(3, CapacityError("no capacity"), "launch"),))
    controller = controller_of(sim)
    until(sim, controller, CHEAPER_S)
    assert sim.faults.calls["launch"] == 3
    until(sim, controller, DEARER_S - POLL_S)
    refused = [node for node in trainers(sim) if node.cause.startswith("sold out")]
    assert [node.is_joiner for node in refused] == [True] and refused[0].id not in sim.cloud.machines
    assert [node.id for node in standing(sim)][:2] == [node.id for node in trainers(sim)[:2]]
    assert sim.cloud.training.epoch == 0


def test_a_joiner_that_never_speaks_ends_alone(ports_of: PortsOf) -> None:
    sim = simulation()
    timing = Timing(poll_s=POLL_S, spend_lease_s=300.0, register_s=100.0, drain_s=60.0)
    controller = Controller(sim.run, ports_of(sim, timing))
    until(sim, controller, CHEAPER_S + POLL_S)
    joiner = trainers(sim)[2]
    sim.cloud.machines[joiner.id].boots_s += 1e6
    until(sim, controller, DEARER_S - POLL_S)
    late = next(node for node in trainers(sim) if node.id == joiner.id)
    assert late.cause.startswith("late in register") and not sim.cloud.machines[joiner.id].exists
    assert [node.id for node in standing(sim)][:2] == [node.id for node in trainers(sim)[:2]]
    assert sim.cloud.training.epoch == 0


def test_a_lost_member_is_replaced_alone_under_the_same_head(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    until(sim, controller, 200.0)
    head, member = trainers(sim)
    sim.cloud.machines[member.id].end(sim.clock.now_s(), "taken")
    until(sim, controller, CHEAPER_S)
    assert [node.status for node in trainers(sim)] == [NodeStatus.READY, NodeStatus.GONE, NodeStatus.READY]
    assert sim.cloud.gang.world == {head.id, trainers(sim)[2].id} and trainers(sim)[2].is_joiner
    assert sim.cloud.training.head == head.id and sim.cloud.training.epoch == 1, "the lost share is in the checkpoint"


@pytest.mark.parametrize("wait_s", [POLL_S, 30.0, 120.0], ids=["asked for", "on its way", "joined"])
def test_when_the_head_is_lost_members_and_joiners_end_and_a_whole_gang_comes(
    controller_of: ControllerOf, wait_s: float
) -> None:
    sim = simulation(Habits(boot_s=60.0, provision_s=15.0))
    controller = controller_of(sim)
    until(sim, controller, CHEAPER_S + wait_s)
    old = trainers(sim)
    assert len(old) == 3
    sim.cloud.machines[old[0].id].end(sim.clock.now_s(), "taken")
    until(sim, controller, DEARER_S)
    assert all(not sim.cloud.machines[node.id].exists for node in old if node.id in sim.cloud.machines)
    new = standing(sim)
    assert [(node.rank, node.gang) for node in new] == [(rank, len(new)) for rank in range(len(new))]
    assert sim.cloud.training.head == new[0].id


def test_a_member_that_drains_when_the_head_is_lost_does_not_keep_the_next_gang_waiting(
    controller_of: ControllerOf,
) -> None:
    sim = simulation(replace(HABITS, resize_s=1e6))
    controller = controller_of(sim)
    until(sim, controller, DEARER_S + POLL_S)
    head, _, leaving = trainers(sim)
    assert leaving.status is NodeStatus.DRAINING
    sim.cloud.machines[head.id].end(sim.clock.now_s(), "taken")
    until(sim, controller, DEARER_S + 6 * POLL_S)
    assert [node.status for node in trainers(sim)[:3]] == [NodeStatus.GONE] * 3
    assert len(trainers(sim)) > 3, "the next gang is asked for"


def test_a_member_has_time_to_hand_on_its_share_whatever_that_takes(controller_of: ControllerOf) -> None:
    whole = simulation()
    until(whole, controller_of(whole), POLL_S)
    market = whole.market.market(whole.start_s)
    offer = market.offer(trainers(whole)[0].offer_id)
    assert offer is not None
    accepted = whole.store.plan(whole.run.id)
    assert accepted is not None
    gang = accepted[0].placement.role(Role.TRAINER)[0].trainer
    assert gang is not None
    formation = gang.formation
    gb_per_s = forecast_gb_per_s(offer, offer, market.network)
    moving_s = resize_s(whole.run.workload.model, formation, formation, gb_per_s)
    assert moving_s > POLL_S + 1.0
    # The coordinator looks at its gang again within a turn.
    last_s = 60.0 + accepted[0].forecast.step_s + moving_s - POLL_S
    sim = simulation(replace(HABITS, stop_s=0.1, resize_s=last_s))
    until(sim, controller_of(sim), END_S)
    assert len(standing(sim)) == 2 and sim.cloud.training.epoch == 0


def test_what_is_planned_of_the_gang_is_told_before_a_machine_joins_or_leaves(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    for at_s, machines in ((CHEAPER_S, 2), (CHEAPER_S + POLL_S, 3), (DEARER_S, 3), (DEARER_S + POLL_S, 2)):
        until(sim, controller, at_s)
        accepted = sim.store.plan(sim.run.id)
        assert accepted is not None
        gang = accepted[1].role(Role.TRAINER)
        assert len(gang) == machines and gang[0].trainer is not None
        assert sim.cloud.gang.planned == GangPlan(machines=machines, layout=LayoutKind(gang[0].trainer.layout.kind))


def test_no_machine_is_told_to_leave_by_a_turn_that_could_not_tell_the_layout(controller_of: ControllerOf) -> None:
    whole = simulation()
    controller = controller_of(whole)
    until(whole, controller, DEARER_S)
    nth = whole.faults.calls["coordinator"] + 1  # after the view, the renewal
    sim = simulation(faults=(Fault(nth, EngineError("no answer"), "coordinator"),))
    controller = controller_of(sim)
    until(sim, controller, DEARER_S + POLL_S)
    assert trainers(sim)[2].status is NodeStatus.DRAINING and sim.cloud.gang.planned is not None
    assert sim.cloud.gang.planned.machines == 3 and not sim.cloud.machines[trainers(sim)[2].id].is_draining
    until(sim, controller, DEARER_S + 2 * POLL_S)
    assert sim.cloud.gang.planned.machines == 2 and sim.cloud.machines[trainers(sim)[2].id].is_draining


def test_machines_that_are_lost_as_they_join_are_rented_a_few_times_and_then_the_gang_goes_on_without(
    controller_of: ControllerOf,
) -> None:
    sim = Simulation(POLICY, Script(prices=tuple(prices(CHEAPER_S, 0.8)), habits=HABITS))
    controller, came = controller_of(sim), dict[str, float]()
    while sim.clock.now_s() < sim.start_s + 4000.0:
        until(sim, controller, sim.clock.now_s() - sim.start_s + POLL_S)
        for node in trainers(sim):
            if node.is_joiner and node.status is NodeStatus.READY:
                joined_s = came.setdefault(node.id, sim.clock.now_s())
                if sim.clock.now_s() >= joined_s + 60.0:
                    sim.cloud.machines[node.id].end(sim.clock.now_s(), "its program failed")
    first = trainers(sim)[:2]
    assert [node.status for node in first] == [NodeStatus.READY] * 2, "the gang that there was is at work"
    assert 3 <= len(came) <= 8
    blocked = [event for _, event in sim.store.history if event.kind == "pool_blocked"]
    told = [event for _, event in sim.store.history if event.kind == "gang_cannot_grow"]
    assert len(blocked) == len(told) == len(came) - 2
    assert "3 machines in a row joined the trainer and were lost" in told[0].text and told[0].node in told[0].text


def live(sim: Simulation, controller_of: ControllerOf) -> list[int]:
    """Grow, shrink, stop; with a new controller after each crash. Return how many calls were made before each turn."""
    controller, made = controller_of(sim), []
    while sim.clock.now_s() < sim.start_s + END_S + 120.0:
        made.append(sim.faults.calls[""])
        try:
            if sim.clock.now_s() >= sim.start_s + END_S:
                controller.stop("the user said so")
            controller.reconcile_once()
        except Crash:
            controller = controller_of(sim)
        sim.clock.sleep(TURN_S)
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize(
    "stride", [13, pytest.param(3, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]
)
def test_no_member_is_orphaned_or_doubled_wherever_the_controller_dies(
    controller_of: ControllerOf, after: bool, stride: int
) -> None:
    whole = simulation()
    made = live(whole, controller_of)
    assert len(whole.cloud.machines) == 5
    grows, shrinks = (range(made[int(at_s / TURN_S)], made[int(at_s / TURN_S) + 9]) for at_s in (CHEAPER_S, DEARER_S))
    for nth in (*grows[::stride], *shrinks[::stride]):
        sim = simulation(faults=(Fault(nth=nth, error=Crash(), after=after),))
        live(sim, controller_of)
        records = {node.id: node for node in sim.store.nodes(sim.run.id)}
        assert set(sim.cloud.machines) == set(whole.cloud.machines), f"call {nth}: {sorted(sim.cloud.machines)}"
        assert set(sim.cloud.machines) <= set(records), f"call {nth}: a machine that no record knows"
        assert not sim.cloud.running(), f"call {nth}: a machine is left"
        assert all(node.status is NodeStatus.GONE for node in records.values()), f"call {nth}"
        assert sim.cloud.training.epoch == 0, f"call {nth}: steps were lost"


@pytest.mark.parametrize("kind", LossKind)
def test_members_that_the_market_takes_leave_nothing_behind(controller_of: ControllerOf, kind: LossKind) -> None:
    sim = simulation(losses=tuple(Loss(at_s, kind, nth) for nth, at_s in enumerate((320.0, 380.0, 460.0, 620.0))))
    live(sim, controller_of)
    assert not sim.cloud.running()
    rent = sum(entry.usd for _, entry in sim.store.entries if entry.kind is CostKind.COMPUTE)
    assert rent >= sim.billed_usd() - 1e-9


@given(histories(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_laws_hold_while_a_gang_changes_its_size(
    controller_of: ControllerOf, history: History, is_elastic: bool
) -> None:
    moves = (*prices(CHEAPER_S, 0.8), *prices(DEARER_S, 1.0))
    habits = replace(history.script.habits, is_elastic=is_elastic)
    sim = Simulation(POLICY, replace(history.script, prices=moves, habits=habits))
    live_through(sim, controller_of, history)
    sim.cloud.advance()
    assert not sim.cloud.running()
    assert all(node.status is NodeStatus.GONE for node in sim.store.node_records.values())
    rent = sum(entry.usd for _, entry in sim.store.entries if entry.kind is CostKind.COMPUTE)
    assert rent >= sim.billed_usd() - 1e-9
