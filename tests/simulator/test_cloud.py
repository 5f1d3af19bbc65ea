from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role
from hexcloud.simulator.simulation import Simulation

Rent = Callable[[Simulation, str], NodeId]
Admit = Callable[[Simulation, NodeId], None]
BOOT_S = 120.0


def test_the_lease_that_the_coordinator_passes_on_is_the_one_that_ends_machines(training: Simulation) -> None:
    training.coordinator().renew(training.clock.wall_s() + 500)
    training.clock.sleep(499)
    assert len(training.provisioner.list_nodes(training.run.id)) == 2
    training.clock.sleep(2)
    assert training.provisioner.list_nodes(training.run.id) == ()


def test_a_new_head_begins_an_epoch_at_the_checkpoint_and_knows_nobody(training: Simulation, rent: Rent) -> None:
    training.clock.sleep(350)
    head = next(machine for machine in training.cloud.running() if machine.is_head)
    training.provisioner.terminate(head.id)
    training.clock.sleep(60)
    rent(training, "trainer-1")
    training.clock.sleep(BOOT_S)
    view = training.coordinator().view()
    assert (view.epoch, view.version, view.checkpoint_version) == (1, 20, 20)
    assert [node.role for node in view.nodes] == [Role.TRAINER]


def test_rollout_that_the_trainer_does_not_need_leaves_slots_empty(
    training: Simulation, rent: Rent, admit: Admit
) -> None:
    assert training.cloud.filled_share() == 1.0
    second = rent(training, "rollout-1")
    training.clock.sleep(BOOT_S)
    admit(training, second)
    assert training.cloud.filled_share() == pytest.approx(1 / 3)
    before = training.cloud.machines[second].made_samples
    training.clock.sleep(100)
    training.cloud.advance()
    assert training.cloud.machines[second].made_samples - before == pytest.approx(50)
