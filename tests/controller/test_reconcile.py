from collections.abc import Callable

import pytest

from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.controller.report import baselines_event
from hexcloud.domain.errors import BudgetError, CapacityError, CredentialsError, PlanError, StoreError
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[[Simulation], Ports]


def simulation(script: Script | None = None, budget_usd: float | None = None, steps: int = 10_000) -> Simulation:
    policy = Policy(target_samples_per_s=20.0, budget_usd=budget_usd)
    return Simulation(policy, script or Script(), steps=steps)


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def ready(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.status is NodeStatus.READY]


def bought_spot(controller_of: ControllerOf) -> tuple[OfferId, float]:
    """Return a spot pool that the first plan rents from, and its price."""
    sim = simulation()
    turns(sim, controller_of(sim), 1)
    offers = sorted(node.offer_id for node in sim.store.nodes(sim.run.id) if node.offer_id.endswith("/spot"))
    return offers[0], sim.market.price(offers[0], sim.start_s)


def events(sim: Simulation, kind: str) -> list[Event]:
    return [event for _, event in sim.store.events(sim.run.id) if event.kind == kind]


def test_a_run_trains_all_its_steps_and_leaves_no_machine(controller_of: ControllerOf) -> None:
    sim = simulation(steps=100)
    assert controller_of(sim).run_until_done() is RunState.DONE
    assert sim.cloud.training.version == 100
    assert not sim.cloud.running()
    assert sim.store.spent_usd(sim.run.id) >= sim.billed_usd()


def test_a_second_reconcile_changes_nothing(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    turns(sim, controller, 40)
    nodes, launches = sim.store.nodes(sim.run.id), sim.faults.calls["launch"]
    turn = controller.reconcile_once()
    assert (turn.changed, turn.triggers) == ((), ())
    assert sim.store.nodes(sim.run.id) == nodes
    assert sim.faults.calls["launch"] == launches


def test_a_lost_rollout_node_is_replaced_in_the_turn_that_sees_the_loss(controller_of: ControllerOf) -> None:
    sim = simulation(Script(losses=(Loss(200.0, LossKind.PREEMPT, nth=0),)))
    controller = controller_of(sim)
    turns(sim, controller, 42)
    [lost] = events(sim, "node_lost")
    asked = [event for event in events(sim, "node_requested") if event.at_s == lost.at_s]
    assert len(asked) == 1
    assert lost.fields["cause"] == "vanished from the provider"
    turns(sim, controller, 40)
    assert len(ready(sim)) == 3


def test_the_heir_of_a_lost_trainer_starts_after_it_and_resumes_from_the_checkpoint(
    controller_of: ControllerOf,
) -> None:
    sim = simulation(Script(losses=(Loss(900.0, LossKind.SILENCE, nth=2),)))
    controller = controller_of(sim)
    turns(sim, controller, 260)
    trainers = [machine for machine in sim.cloud.machines.values() if machine.spec.role is Role.TRAINER]
    assert len(trainers) == 2
    assert trainers[0].ended_s is not None
    assert trainers[1].launched_s >= trainers[0].ended_s
    assert sim.cloud.training.epoch == 1
    assert sim.cloud.training.checkpoint_version >= 40
    assert len(ready(sim)) == 3, "all nodes registered again with the new coordinator"


def test_a_sold_out_pool_is_blocked_and_another_one_bought(controller_of: ControllerOf) -> None:
    sim = simulation(Script(faults=(Fault(0, CapacityError("sold out"), "launch"),)))
    controller = controller_of(sim)
    turns(sim, controller, 3)
    first = events(sim, "node_requested")[0].text.split()[-1]
    assert first in sim.store.blocks(sim.run.id, sim.clock.now_s())
    assert any("capacity" in str(event.fields["trigger"]) for event in events(sim, "replan"))
    turns(sim, controller, 40)
    assert len(ready(sim)) == 3
    assert first not in {node.offer_id for node in ready(sim)}


def test_refused_credentials_stop_the_run_and_say_so(controller_of: ControllerOf) -> None:
    sim = simulation(Script(faults=(Fault(1, CredentialsError("key expired"), "launch"),)))
    assert controller_of(sim).run_until_done() is RunState.FAILED
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert "key expired" in run.reason
    assert not sim.cloud.running()


def test_without_its_store_the_controller_holds_and_rents_nothing(controller_of: ControllerOf) -> None:
    sim = simulation(Script(faults=tuple(Fault(nth, StoreError("gone"), "store") for nth in range(6))))
    turn = controller_of(sim).reconcile_once()
    assert turn.held == "gone"
    assert not sim.cloud.machines


def test_a_budget_that_buys_nothing_rents_nothing_and_names_the_least(controller_of: ControllerOf) -> None:
    sim = simulation(budget_usd=0.01)
    with pytest.raises(BudgetError) as caught:
        controller_of(sim).run_until_done()
    assert caught.value.least_usd > 1.0
    assert not sim.cloud.machines
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert run.state is RunState.FAILED


def test_the_least_budget_it_names_is_enough_to_rent(controller_of: ControllerOf) -> None:
    with pytest.raises(BudgetError) as caught:
        controller_of(simulation(budget_usd=0.01)).run_until_done()
    sim = simulation(budget_usd=caught.value.least_usd * 1.001)
    assert controller_of(sim).run_until_done() is RunState.DONE
    assert sim.cloud.training.checkpoint_version > 0
    assert not events(sim, "launch_refused")


def test_the_budget_ends_the_run_with_a_checkpoint_of_its_last_step(controller_of: ControllerOf) -> None:
    sim = simulation(budget_usd=25.0)
    assert controller_of(sim).run_until_done() is RunState.DONE
    assert sim.billed_usd() <= sim.store.spent_usd(sim.run.id)
    assert 22.0 < sim.store.spent_usd(sim.run.id) <= 25.0
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert "kept for checkpoint and teardown at the highest price, of 25.00 USD" in run.reason
    assert sim.cloud.training.checkpoint_version == sim.cloud.training.version > 0


def test_a_resumed_run_whose_money_rents_no_machine_ends_on_its_budget(controller_of: ControllerOf) -> None:
    sim = simulation(budget_usd=25.0)
    controller_of(sim).run_until_done()
    sim.store.set_run_state(sim.run.id, RunState.RUNNING, "")
    launches = sim.faults.calls["launch"]
    begun_s = sim.clock.now_s()
    assert controller_of(sim).run_until_done() is RunState.DONE
    assert sim.clock.now_s() - begun_s < 60.0
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert run.reason.startswith("budget: ")
    assert run.reason.endswith("the rest rents no fleet")
    assert sim.faults.calls["launch"] == launches


def test_an_ask_that_no_market_meets_fails_the_run_before_anything_is_rented(controller_of: ControllerOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=1e9))
    with pytest.raises(PlanError):
        controller_of(sim).run_until_done()
    assert not sim.cloud.machines


@pytest.mark.parametrize(("agreed", "is_rented"), [(1.05, True), (0.8, False)])
def test_nothing_much_dearer_is_rented_than_what_the_user_agreed_to(
    controller_of: ControllerOf, agreed: float, is_rented: bool
) -> None:
    other = simulation()
    turns(other, controller_of(other), 1)
    accepted = other.store.plan(other.run.id)
    assert accepted is not None
    sim = simulation(steps=20)
    said = accepted[0].allocation.usd_per_hour * agreed
    sim.store.add_event(sim.run.id, baselines_event((), said, sim.clock.now_s(), sim.clock.wall_s()))
    controller = controller_of(sim)
    if is_rented:
        assert controller.run_until_done() is RunState.DONE
        return
    with pytest.raises(PlanError, match=f"since you agreed: {said:.2f} -> "):
        controller.run_until_done()
    assert not sim.cloud.machines
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert run.state is RunState.FAILED


def test_a_price_shift_moves_the_fleet_and_makes_before_it_breaks(controller_of: ControllerOf) -> None:
    spot, price = bought_spot(controller_of)
    sim = simulation(Script(prices=(PriceStep(spot, 2400.0, 2.4 * price),)))
    controller = controller_of(sim)
    turns(sim, controller, 60)
    fewest = 3
    for _ in range(600):
        turns(sim, controller, 1)
        working = {NodeStatus.READY, NodeStatus.DRAINING}
        fewest = min(fewest, sum(node.status in working for node in sim.store.nodes(sim.run.id)))
    assert fewest == 3
    assert spot not in {node.offer_id for node in ready(sim)}
    [shift] = events(sim, "price_shift")
    assert (shift.fields["usd_per_hour_before"], shift.fields["usd_per_hour_after"]) == (price, 2.4 * price)
    moved = [event for event in events(sim, "replan") if event.fields["trigger"] == "price"]
    assert [event.fields["verdict"] for event in moved] == ["moved"]


def test_without_a_price_shift_nothing_ever_moves(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    turns(sim, controller, 100)
    for _ in range(20):
        controller.request_replan("schedule")
        controller.request_replan("schedule")
        turns(sim, controller, 10)
    replans = events(sim, "replan")
    assert [event.fields["trigger"] for event in replans] == ["start"] + ["schedule"] * 20
    assert {event.fields["verdict"] for event in replans[1:]} == {"stayed"}


def test_a_restarted_controller_adopts_its_nodes_and_rents_nothing_twice(controller_of: ControllerOf) -> None:
    sim = simulation()
    turns(sim, controller_of(sim), 40)
    machines = dict(sim.cloud.machines)
    turns(sim, controller_of(sim), 40)
    assert sim.cloud.machines == machines
    assert all(machine.exists for machine in machines.values())


def test_a_stop_asked_of_the_store_ends_the_run(controller_of: ControllerOf) -> None:
    sim = simulation()
    controller = controller_of(sim)
    turns(sim, controller, 40)
    sim.store.set_run_state(sim.run.id, RunState.STOPPING, "hexcloud down")
    assert controller.run_until_done() is RunState.DONE
    assert not sim.cloud.running()
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert run.reason == "hexcloud down"


def test_nodes_that_exit_because_all_is_trained_are_no_losses_and_get_no_heirs(controller_of: ControllerOf) -> None:
    sim = simulation(steps=40)
    assert controller_of(sim).run_until_done() is RunState.DONE
    assert [machine.cause for machine in sim.cloud.machines.values()].count("the run is over") == 2
    assert len(sim.cloud.machines) == 3
    assert not events(sim, "node_lost")
