import hashlib
from collections.abc import Callable

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role
from hexcloud.simulator.simulation import Simulation

Rent = Callable[[Simulation, str], NodeId]
BOOT_S = 120.0


def test_samples_pass_at_the_rate_of_the_live_fleet(training: Simulation) -> None:
    training.clock.sleep(100)
    assert training.coordinator().view().version == 10
    assert training.coordinator().view().trained_samples == 100


def test_a_rollout_node_tells_what_it_has_generated_and_when(training: Simulation) -> None:
    training.clock.sleep(100)
    first = training.coordinator().view().nodes[1]
    training.clock.sleep(10)
    second = training.coordinator().view().nodes[1]
    assert second.heartbeat_at_s == training.clock.wall_s()
    assert second.generated_tokens - first.generated_tokens == 10 * training.run.workload.response_tokens
    assert second.running == second.slots


def test_no_coordinator_answers_before_the_head_is_up(sim: Simulation, rent: Rent) -> None:
    rent(sim, "trainer-0")
    with pytest.raises(EngineError):
        sim.coordinator()


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_node_with_a_foreign_token_or_another_role_never_registers(
    sim: Simulation, rent: Rent, is_foreign: bool
) -> None:
    rent(sim, "trainer-0")
    rollout = rent(sim, "rollout-0")
    sim.clock.sleep(BOOT_S)
    if is_foreign:
        sim.coordinator().admit(rollout, "another hash", Role.ROLLOUT)
    else:
        sim.coordinator().admit(rollout, hashlib.sha256(rollout.encode()).hexdigest(), Role.TRAINER)
    assert rollout not in {node.node_id for node in sim.coordinator().view().nodes}


def test_a_stop_writes_the_checkpoint_and_says_done(training: Simulation) -> None:
    training.clock.sleep(130)
    training.coordinator().stop("enough")
    training.clock.sleep(11)
    view = training.coordinator().view()
    assert view.phase.value == "done"
    assert view.checkpoint_version == view.version >= 13
