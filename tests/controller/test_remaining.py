"""A `budget_run` is planned with what is left of its money, samples and time."""

from collections.abc import Callable

import pytest

from hexcloud.controller.budget import Purse
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.controller.remaining import LITTLE, policy_now
from hexcloud.domain.policy import Objective, Policy
from hexcloud.simulator.simulation import Simulation

PortsOf = Callable[[Simulation], Ports]
STEPS = 400
THRIFTY = Policy(objective=Objective.BUDGET_RUN, budget_usd=500.0, deadline_h=20.0, run_samples=STEPS * 256.0)


def lived(policy: Policy, ports_of: PortsOf, hours: float) -> tuple[Seen, Purse]:
    sim = Simulation(policy, steps=STEPS)
    ports = ports_of(sim)
    controller = Controller(sim.run, ports)
    while sim.clock.now_s() < sim.start_s + hours * 3600:
        controller.reconcile_once()
        sim.clock.sleep(10.0)
    seen = observe(sim.run, ports, Memory())
    return seen, Purse(seen, ports.timing, sim.store.spent_usd(sim.run.id))


def test_other_objectives_keep_their_policy(ports_of: PortsOf) -> None:
    policy = Policy(target_samples_per_s=20.0, budget_usd=500.0)
    assert policy_now(*lived(policy, ports_of, hours=0.2)) == policy


def test_money_samples_and_time_run_down_as_the_run_goes_on(ports_of: PortsOf) -> None:
    seen, purse = lived(THRIFTY, ports_of, hours=0.4)
    now = policy_now(seen, purse)
    assert seen.last_view is not None and seen.last_view.version > 0
    assert now.run_samples == (STEPS - seen.last_view.version) * seen.run.workload.samples_per_step
    assert now.deadline_h == pytest.approx(19.6, abs=0.01)
    assert now.budget_usd is not None and purse.spent_usd > 0
    assert now.budget_usd == pytest.approx(500.0 - purse.spent_usd - purse.reserve_usd(seen.standing()))


def test_what_has_run_out_is_a_little_and_never_nothing(ports_of: PortsOf) -> None:
    seen, purse = lived(THRIFTY, ports_of, hours=0.2)
    late = policy_now(seen, Purse(seen, purse.timing, spent_usd=600.0))
    assert late.budget_usd == LITTLE


def test_a_whole_run_is_trained_for_its_budget_and_before_its_deadline(ports_of: PortsOf) -> None:
    sim = Simulation(THRIFTY, steps=STEPS)
    controller = Controller(sim.run, ports_of(sim))
    turn = controller.reconcile_once()
    while turn.state.value in ("running", "stopping") and sim.clock.now_s() < sim.start_s + 30 * 3600:
        sim.clock.sleep(20.0)
        turn = controller.reconcile_once()
    assert turn.state.value == "done"
    assert sim.store.spent_usd(sim.run.id) < 500.0
    assert sim.clock.now_s() - sim.start_s < 20 * 3600
    view = sim.store.view(sim.run.id)
    assert view is not None and view.version == STEPS
