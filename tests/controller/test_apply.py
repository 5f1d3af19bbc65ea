from collections.abc import Callable

from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.command import Command
from hexcloud.domain.errors import UnknownProvisionError
from hexcloud.domain.fleet import Node, NodeStatus, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.faults import Fault, Outage
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[[Simulation], Ports]
SPOT = OfferId("aws/us-east-1/a/8xL40S/spot")


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def test_a_machine_with_our_tag_that_no_record_knows_is_ended(controller_of: ControllerOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    turns(sim, controller, 30)
    known = next(iter(sim.cloud.machines.values()))
    stray = Node(
        id=node_id(sim.run.id, SlotName("rollout-99"), 1),
        run_id=sim.run.id,
        slot=SlotName("rollout-99"),
        attempt=1,
        role=Role.ROLLOUT,
        offer_id=known.offer.id,
        status=NodeStatus.REQUESTED,
        requested_at_s=sim.clock.now_s(),
    )
    spec = known.spec.model_copy(update={"node_id": stray.id, "slot": stray.slot})
    command = Command(
        image=None,
        argv=(),
        env={},
        secrets={"HEXCLOUD_NODE_TOKEN": "x"},
        files={"node.json": spec.model_dump_json()},
    )
    sim.provisioner.launch((stray,), known.offer, (command,))
    sim.clock.sleep(5.0)
    turns(sim, controller, 3)
    assert not sim.cloud.machines[stray.id].exists
    assert "machine_swept" in [event.kind for _, event in sim.store.events(sim.run.id)]


def test_a_lost_node_can_never_speak_again(controller_of: ControllerOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=(Loss(200.0, LossKind.SILENCE, nth=0),)))
    turns(sim, controller_of(sim), 60)
    silent = [machine.id for machine in sim.cloud.machines.values() if machine.silent_since_s is not None]
    assert len(silent) == 1
    assert silent[0] not in sim.cloud.training.admitted
    assert not sim.cloud.machines[silent[0]].exists


def test_a_node_that_comes_back_after_it_was_replaced_is_fenced(controller_of: ControllerOf) -> None:
    refused = tuple(Fault(nth, UnknownProvisionError("500"), "terminate") for nth in range(1000))
    losses = (Loss(300.0, LossKind.SILENCE, offer_id=SPOT),)
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=losses, faults=refused))
    controller = controller_of(sim)
    turns(sim, controller, 120)
    silent = next(machine for machine in sim.cloud.machines.values() if machine.silent_since_s is not None)
    heirs = [node for node in sim.store.nodes(sim.run.id) if node.status is NodeStatus.READY]
    assert silent.exists and len(heirs) == 3, "it was replaced, though its end is refused"
    silent.silent_since_s, silent.is_registered = None, False  # it is back, and says so
    sim.cloud.register()
    assert not silent.is_registered
    turns(sim, controller, 10)
    assert not silent.is_registered
    view = sim.coordinator().view()
    assert silent.id not in {node.node_id for node in view.nodes}


def test_a_node_that_the_cloud_takes_back_drains_and_is_replaced_before_it_is_gone(controller_of: ControllerOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=(Loss(300.0, LossKind.NOTICE, offer_id=SPOT),)))
    controller = controller_of(sim)
    turns(sim, controller, 61)
    told = next(machine for machine in sim.cloud.machines.values() if machine.notice)
    node = next(node for node in sim.store.nodes(sim.run.id) if node.id == told.id)
    assert node.status is NodeStatus.DRAINING and node.cause == "interruption notice: terminate"
    assert told.is_draining and told.exists
    assert SPOT in sim.store.blocks(sim.run.id, sim.clock.now_s())
    heir = sim.store.nodes(sim.run.id)[-1]
    assert heir.requested_at_s < (told.ends_s or 0.0) and heir.offer_id != SPOT, "asked for while the other still works"
    turns(sim, controller, 60)
    events = [event for _, event in sim.store.events(sim.run.id)]
    assert [event.node for event in events if event.kind == "node_interrupted"] == [told.id]
    assert told.id not in sim.cloud.training.admitted
    assert len(sim.cloud.running()) == 3


def test_a_vanished_machine_is_asked_to_end_once_so_that_nothing_beside_it_is_left(controller_of: ControllerOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=(Loss(300.0, LossKind.PREEMPT, offer_id=SPOT),)))
    turns(sim, controller_of(sim), 100)
    assert sim.faults.calls["terminate"] == 1


def test_a_trainer_lost_with_its_regions_calls_is_replaced_elsewhere_once_its_lease_has_lapsed(
    controller_of: ControllerOf,
) -> None:
    first = Simulation(Policy(target_samples_per_s=20.0))
    turns(first, controller_of(first), 10)
    offer = next(machine for machine in first.cloud.machines.values() if machine.is_head).offer
    outage = Outage(f"{offer.cloud}/{offer.region}", 300.0, 1e9)
    lost = Loss(301.0, LossKind.SILENCE, offer_id=offer.id)
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=(lost,), outages=(outage,)))
    controller = controller_of(sim)
    turns(sim, controller, 60)
    old = next(machine for machine in sim.cloud.machines.values() if machine.is_head)
    assert (old.offer.cloud, old.offer.region) == (offer.cloud, offer.region)
    trained = sim.cloud.training.version
    while old.exists:
        turns(sim, controller, 1)
        heads = [machine for machine in sim.cloud.machines.values() if machine.is_head]
        assert heads == [old], "no second head before the first one's lease has ended it"
    turns(sim, controller, 120)
    run = sim.store.run(sim.run.id)
    assert run is not None and run.state is RunState.RUNNING
    heir = sim.cloud.head()
    assert heir is not None and heir.id != old.id and heir.offer.region != offer.region
    assert sim.cloud.training.version > trained


def test_only_nodes_of_the_fleet_are_admitted_with_their_own_token_and_role(
    controller_of: ControllerOf, ports_of: PortsOf
) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    turns(sim, controller_of(sim), 30)
    secrets = ports_of(sim).secrets
    nodes = sim.store.nodes(sim.run.id)
    assert {node.role for node in nodes} == set(Role)
    assert sim.cloud.training.admitted == {node.id: (secrets.node_token_sha256(node.id), node.role) for node in nodes}
