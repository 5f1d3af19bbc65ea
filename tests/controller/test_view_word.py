"""A coordinator that lives and whose view nobody can read: it is told, and ends nothing."""

from collections.abc import Callable
from dataclasses import replace

from hexcloud.controller.life import Patience, follow
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import UnreadableError
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.messages import RunView
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.ports import Coordinator
from hexcloud.simulator.coordinator import SimCoordinator
from hexcloud.simulator.simulation import Simulation

PortsOf = Callable[[Simulation], Ports]


class Garbled(SimCoordinator):
    """One that answers, and whose view cannot be read."""

    def view(self) -> RunView:
        super().view()
        raise UnreadableError("gb_per_s: not a number")


class Line:
    """The line to a simulated coordinator, readable or not."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.is_garbled = False

    def __call__(self) -> Coordinator:
        return (Garbled if self.is_garbled else SimCoordinator)(self._sim.cloud, self._sim.run)


def kinds(sim: Simulation) -> list[str]:
    return [event.kind for _, event in sim.store.events(sim.run.id) if event.kind.startswith("view_")]


def turns(controller: Controller, sim: Simulation, count: int) -> None:
    for _ in range(count):
        assert controller.reconcile_once().state is RunState.RUNNING
        sim.clock.sleep(5.0)


def test_a_view_that_cannot_be_read_for_long_ends_nothing_and_is_told_once(ports_of: PortsOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    line = Line(sim)
    ports = replace(ports_of(sim), coordinator=line)
    controller = Controller(sim.run, ports)
    turns(controller, sim, 40)
    ready = {node.id for node in sim.store.nodes(sim.run.id) if node.status is NodeStatus.READY}
    assert ready
    line.is_garbled, begun_s, timing = True, sim.clock.wall_s(), ports.timing
    while sim.clock.wall_s() < begun_s + 2 * max(timing.spend_lease_s, timing.silent_trainer_s):
        turns(controller, sim, 1)
        until_s = sim.cloud.training.run_until_wall_s
        assert until_s is not None and until_s > sim.clock.wall_s(), "its machines may run on"
    still = {node.id for node in sim.store.nodes(sim.run.id) if node.status is NodeStatus.READY}
    assert ready <= still and kinds(sim) == ["view_unreadable"]
    line.is_garbled = False
    turns(controller, sim, 2)
    assert kinds(sim) == ["view_unreadable", "view_read_again"]


def test_a_machine_that_may_have_registered_unseen_is_not_late(ports_of: PortsOf) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    ports = ports_of(sim)
    turns(Controller(sim.run, ports), sim, 40)
    seen = replace(observe(sim.run, ports, Memory()), view=None)
    young = seen.nodes[0].model_copy(update={"status": NodeStatus.STARTING, "ready_at_s": None})
    patience = Patience(Timing(register_s=0.0, visible_s=0.0), Memory(launched_at={young.id: seen.wall_s - 1.0}))
    assert follow(young, seen, patience).status is NodeStatus.LOST
    assert follow(young, replace(seen, unreadable="null"), patience).status is NodeStatus.STARTING
