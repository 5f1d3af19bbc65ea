"""Replicas of two machines: rented in one call, working and leaving together, replaced as a whole."""

from collections.abc import Callable

import pytest

from hexcloud.controller.gang import BROKEN_GANG, ask_of, asked_for, broken, is_up, is_waiting, replicas
from hexcloud.controller.life import VANISHED
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import CapacityError
from hexcloud.domain.fleet import DEFAULT_DISK_GIB, LIVE, Node, NodeStatus
from hexcloud.domain.plan import Placement, Role, Slot
from hexcloud.domain.run import RunState
from hexcloud.estimate.disk import disk_gib
from hexcloud.simulator.cloud import Habits, Loss, LossKind
from hexcloud.simulator.faults import Crash, Fault
from hexcloud.simulator.simulation import Script, Simulation
from tests.controller.wide import TARGET, wide_market, wide_workload

ControllerOf = Callable[[Simulation], Controller]
QUIET = Script()


def simulation(script: Script = QUIET) -> Simulation:
    return Simulation(TARGET, script, listed=wide_market(), workload=wide_workload())


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def rollout(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.role is Role.ROLLOUT]


def slots(sim: Simulation) -> tuple[Slot, ...]:
    accepted = sim.store.plan(sim.run.id)
    assert accepted is not None
    return accepted[1].role(Role.ROLLOUT)


def whole(sim: Simulation) -> list[tuple[Node, ...]]:
    """Replicas of which every machine is ready."""
    ready = [node for node in rollout(sim) if node.status is NodeStatus.READY]
    return [one for one in replicas(ready) if len(one) == one[0].gang > 1]


def struck_before_ready(sim: Simulation, controller: Controller) -> None:
    """Let the provider take everything that the newest calls have brought and that is not ready."""
    turns(sim, controller, 3)
    for node in rollout(sim):
        if node.status is NodeStatus.STARTING:
            sim.cloud.machines[node.id].end(sim.clock.now_s(), "preempted")
    turns(sim, controller, 3)


def blocks(sim: Simulation) -> list[str]:
    return [event.text for _, event in sim.store.events(sim.run.id) if event.kind == "pool_blocked"]


@pytest.fixture
def sim() -> Simulation:
    return simulation()


def test_a_replica_is_asked_for_in_one_call_and_makes_what_it_makes_whole(
    sim: Simulation, controller_of: ControllerOf
) -> None:
    turns(sim, controller_of(sim), 60)
    assert sim.faults.calls["launch"] == 3, "two replicas and the trainer"
    pairs = whole(sim)
    assert [[(node.rank, node.gang, node.head) for node in pair] for pair in pairs] == [
        [(0, 2, pair[0].slot), (1, 2, pair[0].slot)] for pair in pairs
    ]
    rates = [sim.cloud.rate_per_wall_s(sim.cloud.machines[node.id]) for pair in pairs for node in pair]
    (rate,) = {slot.rollout.samples_per_s for slot in slots(sim) if slot.rollout is not None}
    assert rates == pytest.approx([rate, 0.0, rate, 0.0])


def test_each_machine_has_the_disk_that_its_role_fills_and_bills_it(controller_of: ControllerOf) -> None:
    model = wide_workload().model.model_copy(update={"params": 40 * wide_workload().model.params})
    sim = simulation()
    large = sim.run.workload.model_copy(update={"model": model})
    sim.store.save_run(sim.run.model_copy(update={"workload": large}))
    controller_of(sim).reconcile_once()
    nodes = sim.store.nodes(sim.run.id)
    assert max(node.disk_gib for node in nodes) > DEFAULT_DISK_GIB
    assert {(node.role, node.disk_gib) for node in nodes} == {(node.role, disk_gib(node.role, large)) for node in nodes}


def test_each_machine_of_a_replica_is_billed(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 60)
    billed = {entry.node_id for _, entry in sim.store.entries}
    assert {node.id for pair in whole(sim) for node in pair} <= billed


@pytest.mark.parametrize("rank", [0, 1])
def test_with_one_machine_the_replica_goes_as_a_whole_and_another_takes_its_place(
    sim: Simulation, controller_of: ControllerOf, rank: int
) -> None:
    controller = controller_of(sim)
    turns(sim, controller, 60)
    first, second = whole(sim)
    sim.cloud.machines[first[rank].id].end(sim.clock.now_s(), "preempted")
    turns(sim, controller, 6)
    assert not any(sim.cloud.machines[node.id].exists for node in first)
    turns(sim, controller, 40)
    assert all(node.id in {one.id for pair in whole(sim) for one in pair} for node in second)
    assert len(whole(sim)) == 2 and sim.cloud.training.epoch == 0
    assert {node.id for node in rollout(sim) if node.status in LIVE} == {one.id for pair in whole(sim) for one in pair}


def test_a_silent_member_ends_its_replica(controller_of: ControllerOf) -> None:
    sim = simulation(Script(losses=(Loss(at_s=310.0, kind=LossKind.SILENCE, nth=1),)))
    controller = controller_of(sim)
    turns(sim, controller, 60)
    before = {node.id for pair in whole(sim) for node in pair}
    turns(sim, controller, 90)
    gone = {node.id for node in rollout(sim) if node.status is NodeStatus.GONE}
    assert len(gone & before) == 2 and len(whole(sim)) == 2
    assert not any(sim.cloud.machines[node].exists for node in gone)


def test_before_a_machine_is_taken_its_replicas_head_may_finish(controller_of: ControllerOf) -> None:
    sim = simulation(Script(habits=Habits(notice_s=120.0)))
    controller = controller_of(sim)
    turns(sim, controller, 60)
    head, member = whole(sim)[0]
    nth = [node.id for pair in whole(sim) for node in pair].index(member.id)
    sim.cloud.losses = (Loss(at_s=sim.clock.now_s(), kind=LossKind.NOTICE, offer_id=member.offer_id, nth=nth),)
    turns(sim, controller, 1)
    noticed = [node for node in rollout(sim) if node.status is NodeStatus.DRAINING]
    assert {node.id for node in noticed} == {head.id, member.id}
    assert sim.cloud.machines[head.id].is_draining and not sim.cloud.machines[member.id].is_draining
    assert sim.cloud.machines[member.id].exists, "it waits for its head"
    turns(sim, controller, 60)
    assert not sim.cloud.machines[head.id].exists and len(whole(sim)) == 2


@pytest.mark.parametrize("turn", [3, 20, 60])
def test_a_restarted_controller_takes_replicas_over(sim: Simulation, controller_of: ControllerOf, turn: int) -> None:
    turns(sim, controller_of(sim), turn)
    turns(sim, controller_of(sim), 70 - turn)
    assert len(whole(sim)) == 2 and len(rollout(sim)) == 4 and sim.faults.calls["launch"] == 3


def test_of_a_replica_whose_controller_died_between_two_intents_nothing_is_launched(
    controller_of: ControllerOf,
) -> None:
    for nth in range(400):
        sim = simulation(Script(faults=(Fault(nth, Crash(), "store", after=True),)))
        try:
            controller_of(sim).reconcile_once()
        except Crash:
            if len(rollout(sim)) == 1:
                break
    else:
        raise AssertionError("the controller never died between the two")
    sim.clock.sleep(5.0)
    turns(sim, controller_of(sim), 60)
    first, *others = rollout(sim)
    assert first.status is NodeStatus.GONE and first.id not in sim.cloud.machines
    assert len(whole(sim)) == 2 and all(node.status is NodeStatus.READY for node in others)


def test_a_replica_that_is_refused_costs_nothing(controller_of: ControllerOf) -> None:
    sim = simulation(Script(faults=(Fault(0, CapacityError("no capacity"), "launch"),)))
    controller = controller_of(sim)
    turns(sim, controller, 1)
    refused = [node for node in rollout(sim) if node.status is NodeStatus.GONE]
    assert len(refused) == 2 and {node.id for node in refused}.isdisjoint(sim.cloud.machines)
    turns(sim, controller, 60)
    assert len(whole(sim)) == 2


def test_a_replica_that_vanishes_before_it_is_ready_is_one_failure_of_its_pool(
    sim: Simulation, controller_of: ControllerOf
) -> None:
    controller = controller_of(sim)
    struck_before_ready(sim, controller)
    vanished = [node for node in rollout(sim) if node.cause.startswith(VANISHED)]
    assert len(vanished) == 4 and len({ask_of(node) for node in vanished}) == 2
    assert blocks(sim) == [], "two calls failed, not four"
    struck_before_ready(sim, controller)
    assert len(blocks(sim)) == 2, "the third call and the fourth"
    assert all("do not come up" in block for block in blocks(sim))


def test_a_pool_is_forgiven_when_a_whole_replica_is_up(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 60)
    (head, member), (other, _) = whole(sim)
    waits = member.model_copy(update={"status": NodeStatus.STARTING})
    assert is_up(head, (head, member)) and is_up(head, (head, other))
    assert not is_up(head, (head, waits))
    gang = [head.model_copy(update={"role": Role.TRAINER, "head": None, "rank": rank}) for rank in (0, 1)]
    assert ask_of(gang[0]) == ask_of(gang[1]) != ask_of(gang[0].model_copy(update={"gang": 1}))


def test_no_machine_is_left_when_the_run_ends(sim: Simulation, controller_of: ControllerOf) -> None:
    controller = controller_of(sim)
    turns(sim, controller, 60)
    controller.stop("the user stops it")
    turns(sim, controller, 60)
    run = sim.store.run(sim.run.id)
    assert run is not None and run.state is RunState.DONE
    assert not any(machine.exists for machine in sim.cloud.machines.values())


def test_members_wait_for_a_head_that_drains_and_for_no_other(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 60)
    (head, member), (other, _) = whole(sim)
    drains = head.model_copy(update={"status": NodeStatus.DRAINING})
    gone = head.model_copy(update={"status": NodeStatus.STOPPING})
    again = head.model_copy(update={"requested_at_s": head.requested_at_s + 1.0})
    assert is_waiting(member, (drains,)) and not is_waiting(member, (gone, other, again))
    assert not is_waiting(head, (member,))
    assert broken((head, member)) == () and broken((drains, member)) == ((member,),)
    assert set(broken((gone, member, other))) == {(member,), (other,)}


def test_intents_of_replicas_are_launched_each_as_one(sim: Simulation, controller_of: ControllerOf) -> None:
    turns(sim, controller_of(sim), 1)
    wanted = [node.model_copy(update={"status": NodeStatus.REQUESTED}) for node in rollout(sim)]
    accepted = sim.store.plan(sim.run.id)
    assert accepted is not None
    placement: Placement = accepted[1]
    names = {slot.name: slot for slot in placement.slots}
    assert [[node.rank for node in one] for one in asked_for(reversed(wanted), names)] == [[0, 1], [0, 1]]
    assert asked_for(wanted[:1], names) == ()


def test_the_rest_of_a_replica_says_why_it_ended(sim: Simulation, controller_of: ControllerOf) -> None:
    controller = controller_of(sim)
    turns(sim, controller, 60)
    head, member = whole(sim)[0]
    sim.cloud.machines[member.id].end(sim.clock.now_s(), "preempted")
    turns(sim, controller, 6)
    causes = {node.id: node.cause for node in rollout(sim)}
    assert causes[head.id] == BROKEN_GANG
