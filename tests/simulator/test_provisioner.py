from collections.abc import Callable

import pytest

from hexcloud.domain.command import Command
from hexcloud.domain.errors import CapacityError, NotYetError
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, node_id
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.cloud import Habits
from hexcloud.simulator.simulation import Script, Simulation
from tests.simulator.conftest import command

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


def gang_of(sim: Simulation, size: int) -> tuple[tuple[Node, ...], tuple[Command, ...]]:
    nodes = tuple(
        Node(
            id=node_id(sim.run.id, SlotName(f"rollout-{number}"), 1),
            run_id=sim.run.id,
            slot=SlotName(f"rollout-{number}"),
            attempt=1,
            role=Role.ROLLOUT,
            offer_id=SPOT,
            status=NodeStatus.REQUESTED,
            requested_at_s=sim.clock.now_s(),
        )
        for number in range(size)
    )
    return nodes, tuple(command(sim, node) for node in nodes)


def spot(sim: Simulation) -> Offer:
    offer = sim.market.market(sim.clock.now_s()).offer(SPOT)
    assert offer is not None
    return offer


def test_a_gang_comes_whole_or_not_at_all() -> None:
    sim = Simulation(Policy(), Script(capacity=(CapacityStep(SPOT, 0.0, 2),)))
    with pytest.raises(CapacityError):
        sim.provisioner.launch(gang_of(sim, 3)[0], spot(sim), gang_of(sim, 3)[1])
    assert not sim.cloud.machines
    sim.provisioner.launch(gang_of(sim, 2)[0], spot(sim), gang_of(sim, 2)[1])
    assert len(sim.cloud.running()) == 2


def test_a_launch_on_its_way_says_its_phase_and_bills() -> None:
    sim = Simulation(Policy(), Script(habits=Habits(provision_s=60.0, setup_s=30.0)))
    nodes, commands = gang_of(sim, 2)
    phases = []
    for _ in range(3):
        try:
            sim.provisioner.launch(nodes, spot(sim), commands)
        except NotYetError as error:
            phases.append(error.phase)
        sim.clock.sleep(65.0 if len(phases) == 1 else 30.0)
    assert phases == ["provision", "setup"]
    assert len(sim.cloud.machines) == 2
    assert sim.billed_usd() > 0
