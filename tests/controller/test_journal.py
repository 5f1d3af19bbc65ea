from collections.abc import Callable

from hexcloud.controller.journal import Journal
from hexcloud.controller.life import OVER
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import NodeStatus
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
