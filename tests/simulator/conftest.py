"""Machines of a simulation without a controller: rent, admit, and a run that trains."""

import hashlib
from collections.abc import Callable

import pytest

from hexcloud.domain.command import Command, Emulation, NodeSpec
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, node_id
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

SPOT = OfferId("aws/us-east-1/a/8xL40S/spot")
ON_DEMAND = OfferId("lambda/us-west-1/-/8xA100/on_demand")
BOOT_S, LEASE_S = 120.0, 60.0


@pytest.fixture(scope="session")
def rent() -> Callable[[Simulation, str], NodeId]:
    """Launch a machine that makes or trains one sample per second: a spot rollout node, or the head on demand."""

    def rent_slot(sim: Simulation, slot: str) -> NodeId:
        role = Role(slot.partition("-")[0])
        offer = sim.market.market(sim.clock.now_s()).offer(ON_DEMAND if role is Role.TRAINER else SPOT)
        assert isinstance(offer, Offer)
        node = Node(
            id=node_id(sim.run.id, SlotName(slot), 1),
            run_id=sim.run.id,
            slot=SlotName(slot),
            attempt=1,
            role=role,
            offer_id=offer.id,
            status=NodeStatus.REQUESTED,
            requested_at_s=sim.clock.now_s(),
        )
        sim.provisioner.launch((node,), offer, (command(sim, node),))
        return node.id

    return rent_slot


def command(sim: Simulation, node: Node) -> Command:
    spec = NodeSpec(
        run_id=sim.run.id,
        node_id=node.id,
        slot=node.slot,
        role=node.role,
        task="sort_digits",
        seed=0,
        slots=8,
        samples_per_step=10,
        group_size=2,
        eta=1,
        steps=1000,
        run_dir="sim",
        output="sim",
        tokens_per_sample=2048,
        spend_lease_s=LEASE_S,
        emulation=Emulation(clock_scale=1.0, samples_per_s=1.0),
    )
    secrets: dict[str, str] = {"HEXCLOUD_NODE_TOKEN": node.id}
    if node.role is Role.TRAINER:
        secrets["HEXCLOUD_CONTROLLER_TOKEN"] = "controller"
    return Command(image=None, argv=(), env={}, secrets=secrets, files={"node.json": spec.model_dump_json()})


@pytest.fixture(scope="session")
def admit() -> Callable[[Simulation, NodeId], None]:
    def admit_node(sim: Simulation, node: NodeId) -> None:
        sim.coordinator().admit(node, hashlib.sha256(node.encode()).hexdigest(), sim.cloud.machines[node].spec.role)

    return admit_node


@pytest.fixture
def sim() -> Simulation:
    return Simulation(Policy(target_samples_per_s=1.0))


@pytest.fixture
def training(
    sim: Simulation, rent: Callable[[Simulation, str], NodeId], admit: Callable[[Simulation, NodeId], None]
) -> Simulation:
    """A head and one rollout node, registered, with a lease of an hour."""
    rent(sim, "trainer-0")
    rollout = rent(sim, "rollout-0")
    sim.clock.sleep(BOOT_S)
    admit(sim, rollout)
    sim.coordinator().renew(sim.clock.wall_s() + 3600)
    return sim
