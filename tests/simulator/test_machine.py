from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.policy import Policy
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.simulation import Script, Simulation

Rent = Callable[[Simulation, str], NodeId]
Admit = Callable[[Simulation, NodeId], None]
BOOT_S, LEASE_S = 120.0, 60.0


def test_a_machine_nobody_speaks_to_ends_itself_and_its_bill(sim: Simulation, rent: Rent) -> None:
    rent(sim, "rollout-0")
    sim.clock.sleep(10_000)
    hours = (BOOT_S + LEASE_S) / 3600
    assert sim.billed_usd() == pytest.approx(11.0 * hours)
    assert sim.provisioner.list_nodes(sim.run.id) == ()


def test_a_machine_makes_what_its_engines_really_can(rent: Rent, admit: Admit) -> None:
    sim = Simulation(Policy(), Script(engines={"L40S": 0.5}))
    rent(sim, "trainer-0")
    rollout = rent(sim, "rollout-0")
    sim.clock.sleep(BOOT_S)
    admit(sim, rollout)
    sim.coordinator().renew(sim.clock.wall_s() + 3600)
    sim.clock.sleep(100)
    assert sim.coordinator().view().trained_samples == 50


def test_a_silent_machine_bills_on_and_makes_nothing(rent: Rent, admit: Admit) -> None:
    sim = Simulation(Policy(), Script(losses=(Loss(150.0, LossKind.SILENCE, nth=1),)))
    rent(sim, "trainer-0")
    rollout = rent(sim, "rollout-0")
    sim.clock.sleep(BOOT_S)
    admit(sim, rollout)
    sim.coordinator().renew(sim.clock.wall_s() + 3600)
    sim.clock.sleep(130)
    view = sim.coordinator().view()
    assert view.version == 3
    assert {node.node_id: node.silent_s for node in view.nodes}[rollout] == pytest.approx(100.0)
    assert len(sim.cloud.running()) == 2
