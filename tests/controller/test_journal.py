from collections.abc import Callable

import pytest

from hexcloud.controller.experience import stays_of
from hexcloud.controller.journal import Journal
from hexcloud.controller.life import OVER
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import NodeId, NodeStatus
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation


def test_an_end_is_told_as_a_loss_only_when_it_is_one(
    controller_of: Callable[[Simulation], Controller], ports_of: Callable[[Simulation], Ports]
) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller_of(sim).reconcile_once()
    journal = Journal(sim.store, observe(sim.run, ports_of(sim), Memory()))
    node = sim.store.nodes(sim.run.id)[0].model_copy(update={"status": NodeStatus.READY})
    ends = (
        node.model_copy(update={"status": NodeStatus.GONE, "cause": "vanished"}),
        node.model_copy(update={"status": NodeStatus.GONE, "cause": OVER}),
        node.model_copy(update={"status": NodeStatus.LOST, "cause": "silent"}),
        node.model_copy(update={"status": NodeStatus.STOPPING, "cause": "released"}),
    )
    for end in ends:
        journal.save(node, end)
    kinds = [event.kind for _, event in sim.store.events(sim.run.id)][-4:]
    assert kinds == ["node_lost", "node_gone", "node_lost", "node_stopping"]


def test_a_machine_that_came_up_is_told_with_how_long_it_took_and_as_its_pool_learns_it(
    controller_of: Callable[[Simulation], Controller],
) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    for _ in range(80):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    ready = {event.node: event for _, event in sim.store.events(sim.run.id) if event.kind == "node_ready"}
    nodes = {node.id: node for node in sim.store.nodes(sim.run.id) if node.ready_at_s is not None}
    assert ready.keys() == nodes.keys() and ready
    for node_id, event in ready.items():
        (stay,) = stays_of([nodes[NodeId(node_id)]], sim.clock.now_s())
        assert stay.ready_at_s is not None
        assert event.fields["took_s"] == pytest.approx(stay.ready_at_s - stay.asked_at_s, abs=0.1)
        assert event.fields["setup_s"] == event.fields["program_s"] == 0.0, "simulated machines measure nothing"
