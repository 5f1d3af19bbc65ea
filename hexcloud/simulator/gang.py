"""SimGang: which trainer machines hold the state. It changes as the runtime's does (runtime/coordinator_gang.py)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.world import GangPlan
from hexcloud.simulator.machine import Machine


@dataclass
class SimGang:
    """The trainer's machines under one head. Times are run-clock seconds."""

    resize_s: float
    """From the order to leave to the moment at which a machine holds nothing any more."""
    world: frozenset[NodeId] = frozenset()
    """Empty until as many machines are there as the head was planned with."""
    planned: GangPlan | None = None
    """What the head was told last."""
    leaves_s: dict[NodeId, float] = field(default_factory=dict)
    """When those that were told to go have handed on what they hold."""

    def begin(self) -> None:
        """Have a new head, under which nothing is formed."""
        self.world, self.leaves_s, self.planned = frozenset(), {}, None

    def share(self, head: Machine) -> float:
        """Return how many times the machines it was planned with the gang has; 0 while it is not formed."""
        return len(self.world) / head.spec.gang

    def follow(self, head: Machine, machines: Iterable[Machine], at_s: float) -> bool:
        """Take in who came, let go who was told to; return whether somebody was lost with a share of the state."""
        present = {machine.id: machine for machine in machines if _is_present(machine)}
        for machine in present.values():
            if machine is not head and machine.is_going:
                self.leaves_s.setdefault(machine.id, at_s + self.resize_s)
        gone = {node for node, leaves_s in self.leaves_s.items() if leaves_s <= at_s}
        is_lost = bool(self.world - gone - present.keys())
        if self.world or len(present) >= head.spec.gang:
            self.world = frozenset(present) - gone
        return is_lost

    def due_s(self) -> Iterator[float]:
        """Yield the moments at which somebody may leave."""
        yield from self.leaves_s.values()


def _is_present(machine: Machine) -> bool:
    return not machine.is_rollout() and machine.exists and machine.is_registered and machine.silent_since_s is None
