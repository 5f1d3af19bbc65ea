from collections.abc import Callable

import pytest

from hexcloud.domain.errors import CapacityError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.offer import OfferId
from hexcloud.domain.policy import Policy
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.simulation import Script, Simulation

Rent = Callable[[Simulation, str], NodeId]
SPOT = OfferId("aws/us-east-1/a/8xL40S/spot")


def test_one_id_is_one_machine_even_after_its_end(sim: Simulation, rent: Rent) -> None:
    first = rent(sim, "rollout-0")
    sim.provisioner.terminate(first)
    sim.clock.sleep(60)
    rent(sim, "rollout-0")
    assert len(sim.cloud.machines) == 1
    assert not sim.cloud.running()


def test_capacity_refuses_new_machines_and_takes_spot_back(rent: Rent) -> None:
    sim = Simulation(Policy(), Script(capacity=(CapacityStep(SPOT, 0.0, 1), CapacityStep(SPOT, 50.0, 0))))
    rent(sim, "rollout-0")
    with pytest.raises(CapacityError):
        rent(sim, "rollout-1")
    sim.clock.sleep(51)
    sim.cloud.advance()
    assert [machine.cause for machine in sim.cloud.machines.values()] == ["taken back"]
