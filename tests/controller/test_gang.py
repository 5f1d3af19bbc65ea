"""Gangs: asked for in one call, given back as a whole."""

from collections.abc import Callable

import pytest

from hexcloud.controller.gang import BROKEN_GANG, asked_for, is_at_work, remnants
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.controller.report import RunFacts, build_report
from hexcloud.domain.errors import CapacityError
from hexcloud.domain.fleet import FleetState, Node, NodeStatus
from hexcloud.domain.plan import Placement, Role
from hexcloud.domain.policy import Policy
from hexcloud.planner.diff import diff
from hexcloud.simulator.faults import Crash, Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[..., Ports]
TWO_TRAINERS = Policy(target_samples_per_s=40.0)
"""Its cheapest plan in the small market: two rollout nodes, and a gang of two machines."""
TIMING = Timing(poll_s=5.0, spend_lease_s=600.0, register_s=300.0, drain_s=60.0)


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def trainers(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.role is Role.TRAINER]


def placement(sim: Simulation) -> Placement:
    accepted = sim.store.plan(sim.run.id)
    assert accepted is not None
    return accepted[1]


@pytest.fixture
def sim() -> Simulation:
    return Simulation(TWO_TRAINERS)


def test_a_gang_is_asked_for_in_one_call_in_rank_order(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 40)
    assert sim.faults.calls["launch"] == 3
    assert [(node.rank, node.gang) for node in trainers(sim)] == [(0, 2), (1, 2)]
    assert [node.status for node in trainers(sim)] == [NodeStatus.READY] * 2


def test_a_gang_that_is_refused_whole_costs_nothing(controller_of: ControllerOf) -> None:
    sim = Simulation(TWO_TRAINERS, Script(faults=(Fault(2, CapacityError("no capacity"), "launch"),)))
    turns(sim, controller_of(sim), 2)
    refused = [node for node in trainers(sim) if node.attempt == 1 and node.status is NodeStatus.GONE]
    assert len(refused) == 2
    assert {node.id for node in refused}.isdisjoint(sim.cloud.machines)
    turns(sim, controller_of(sim), 60)
    billed = {entry.node_id for _, entry in sim.store.entries}
    assert billed.isdisjoint({node.id for node in refused})


@pytest.mark.parametrize("victim", [0, 1])
def test_a_gang_whose_member_dies_before_it_registers_is_given_back_whole_and_its_waste_told(
    sim: Simulation, ports_of: PortsOf, victim: int
) -> None:
    controller = Controller(sim.run, ports_of(sim, TIMING))
    turns(sim, controller, 4)
    gang = trainers(sim)
    assert [node.status for node in gang] == [NodeStatus.STARTING] * 2
    sim.cloud.machines[gang[victim].id].end(sim.clock.now_s(), "taken")
    turns(sim, controller, 5)
    assert not any(sim.cloud.machines[node.id].exists for node in gang)
    causes = [node.cause for node in trainers(sim)[:2]]
    assert causes[victim].startswith("vanished") and causes[1 - victim] == BROKEN_GANG
    turns(sim, controller, 60)
    assert [node.status for node in trainers(sim)[-2:]] == [NodeStatus.READY] * 2
    entries = tuple(entry for _, entry in sim.store.entries)
    report = build_report(RunFacts(sim.run, ledger=entries, nodes=sim.store.nodes(sim.run.id)))
    (row,) = report.waste
    assert set(row.nodes) == {node.id for node in gang} and row.cause.startswith("vanished")
    assert row.usd == pytest.approx(sum(entry.usd for entry in entries if entry.node_id in row.nodes))
    assert 0 < row.usd < report.spent_usd


def test_a_gang_one_of_whose_members_never_registers_is_given_back_whole_within_the_deadline(
    sim: Simulation, ports_of: PortsOf
) -> None:
    controller = Controller(sim.run, ports_of(sim, TIMING))
    turns(sim, controller, 2)
    gang = trainers(sim)
    sim.cloud.machines[gang[1].id].boots_s += 1e6
    turns(sim, controller, int(TIMING.register_s / 5.0) + 8)
    assert not any(sim.cloud.machines[node.id].exists for node in gang)
    assert trainers(sim)[1].cause.startswith("late in register")


def test_of_a_gang_whose_controller_died_between_two_intents_nothing_is_launched(controller_of: ControllerOf) -> None:
    reference = Simulation(TWO_TRAINERS)
    turns(reference, controller_of(reference), 30)
    for nth in range(400):
        sim = Simulation(TWO_TRAINERS, Script(faults=(Fault(nth, Crash(), "store", after=True),)))
        try:
            controller_of(sim).reconcile_once()
        except Crash:
            if len(trainers(sim)) == 1:
                break
    else:
        raise AssertionError("the controller never died between the two")
    sim.clock.sleep(5.0)
    turns(sim, controller_of(sim), 60)
    first, *others = trainers(sim)
    assert first.status is NodeStatus.GONE and first.id not in sim.cloud.machines
    assert [node.status for node in others if node.status is not NodeStatus.GONE] == [NodeStatus.READY] * 2


def test_the_rest_of_a_gang_of_another_size_is_of_no_use(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 40)
    nodes = {node.id: node for node in sim.store.nodes(sim.run.id)}
    wanted, fleet = placement(sim), FleetState(nodes=tuple(nodes.values()))
    assert remnants(diff(wanted, fleet), wanted, nodes) == ()
    one_less = Placement(slots=tuple(slot for slot in wanted.slots if slot.rank != 1))
    assert remnants(diff(one_less, fleet), one_less, nodes) == (trainers(sim)[0].id,)


def test_intents_are_launched_gang_by_gang(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 1)
    nodes = [node.model_copy(update={"status": NodeStatus.REQUESTED}) for node in sim.store.nodes(sim.run.id)]
    slots = {slot.name: slot for slot in placement(sim).slots}
    gangs = asked_for(reversed(nodes), slots)
    assert [[node.rank for node in gang] for gang in gangs] == [[0], [0], [0, 1]]
    assert all(len(gang) == 1 for gang in asked_for([node for node in nodes if node.rank == 0], slots))


def test_who_would_join_is_launched_alone_and_only_while_the_gang_is_at_work(
    sim: Simulation, controller_of: ControllerOf
) -> None:
    turns(sim, controller_of(sim), 1)
    slots = {slot.name: slot for slot in placement(sim).slots}
    head, member = trainers(sim)
    joiner = member.model_copy(update={"status": NodeStatus.REQUESTED, "gang": 1})
    ready = head.model_copy(update={"status": NodeStatus.READY})
    assert asked_for((ready, joiner), slots) == ()
    assert asked_for((ready, joiner), slots, may_join=True) == ((joiner,),)


def test_joiners_without_their_head_are_of_no_use(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 40)
    slot = next(slot for slot in placement(sim).slots if slot.rank == 1)
    alone = Placement(slots=(slot.model_copy(update={"rank": 0}),))
    joiner = trainers(sim)[1].model_copy(update={"gang": 1})
    change = diff(alone, FleetState(nodes=(joiner,)))
    assert not change.launches and remnants(change, alone, {joiner.id: joiner}) == (joiner.id,)


def test_a_gang_is_at_work_once_it_has_trained_under_the_head_that_is_wanted(
    sim: Simulation, ports_of: PortsOf
) -> None:
    ports = ports_of(sim)
    controller = Controller(sim.run, ports)

    def answer(wanted: Placement) -> bool:
        return is_at_work(wanted, sim.store.nodes(sim.run.id), observe(sim.run, ports, Memory()))

    turns(sim, controller, 24)
    assert all(node.status is not NodeStatus.READY for node in trainers(sim)) and not answer(placement(sim))
    turns(sim, controller, 20)
    assert answer(placement(sim))
    gang = placement(sim).role(Role.TRAINER)
    assert answer(Placement(slots=gang[:1])), "one machine less"
    other = gang[0].model_copy(update={"offer_id": "aws/us-east-1/a/8xH100/on_demand"})
    assert not answer(Placement(slots=(other,))), "another offer"
    promoted = tuple(slot.model_copy(update={"rank": 1 - slot.rank}) for slot in gang)
    assert not answer(Placement(slots=promoted)), "another head"
    assert not answer(Placement(slots=promoted[1:])), "the head leaves"
