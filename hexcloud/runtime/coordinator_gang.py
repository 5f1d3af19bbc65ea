"""TrainerGang: which machines and ranks the trainer shall have, from what the coordinator hears of its nodes.

One change at a time. Machines that come, or are told to go, change the world while it lives; a machine or rank that is
lost takes its share of the state with it, so all ranks begin anew from the newest checkpoint.
"""

from collections.abc import Iterable

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Rendezvous
from hexcloud.domain.plan import Role
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.world import World
from hexcloud.runtime.coordinator_nodes import KnownNode


class TrainerGang:
    """The head is always a member. Nothing is wanted before as many machines are there as were planned."""

    def __init__(self, spec: NodeSpec, nodes: Iterable[KnownNode]) -> None:
        """`spec` is the head's; `nodes` are all that the coordinator knows, at any time."""
        self._spec = spec
        self._nodes = nodes
        self._world: World | None = None
        self._is_formed = False

    @property
    def world(self) -> World | None:
        """The world that is wanted now; None until the gang is whole for the first time."""
        head, known = self._spec.node_id, [node for node in self._nodes if node.role is Role.TRAINER]
        answering = {head, *(node.id for node in known if not node.is_silent)}
        staying = answering - {node.id for node in known if node.is_going and node.id != head}
        return self._decide(answering, staying)

    def meet(self, told: Rendezvous) -> None:
        """Know where rank 0 is met, and whether its world is formed. Word of an earlier world is late."""
        world = self._world
        if world is not None and told.generation == world.generation:
            self._is_formed = told.is_formed
            self._world = world.model_copy(update={"store": told.store or world.store})

    def holds(self, node: NodeId) -> bool:
        """Has a machine that is not the head a share of the state that it has yet to hand on?"""
        world = self._world
        if world is None or node == self._spec.node_id:
            return False
        return node in (world.nodes if self._is_formed else world.union)

    def restart(self) -> None:
        """Begin anew with the machines there are: a rank has died."""
        world = self.world
        if world is not None:
            self._want(world.nodes, before=())

    def _decide(self, answering: set[NodeId], staying: set[NodeId]) -> World | None:
        head, world = self._spec.node_id, self._world
        old = world.nodes if world else (head,)
        wanted = (*(node for node in old if node in staying), *sorted(staying - set(old)))
        if world is None:
            if len(wanted) >= self._spec.gang:
                self._world = _first(self._spec, wanted)
        elif not answering.issuperset(world.nodes if self._is_formed else world.union):
            # Who was lost before it had joined held nothing: the change is made without it.
            is_whole = not self._is_formed and answering.issuperset(world.before)
            self._want(wanted, before=world.before if is_whole else ())
        elif wanted != world.nodes and self._is_formed:
            self._want(wanted, before=world.nodes)
        return self._world

    def _want(self, nodes: tuple[NodeId, ...], before: tuple[NodeId, ...]) -> None:
        assert self._world is not None
        # Rank 0 lives on through a live change, and so does the place where it is met.
        store = self._world.store if before else ""
        changes = {"generation": self._world.generation + 1, "nodes": nodes, "before": before, "store": store}
        self._world = self._world.model_copy(update=changes)
        self._is_formed = False


def _first(spec: NodeSpec, nodes: tuple[NodeId, ...]) -> World:
    """Return the first world of a head, which is told what is to be alike on all ranks."""
    training = spec.training
    return World(
        nodes=nodes,
        ranks=spec.ranks,
        layout=training.layout or LayoutKind.FSDP,
        micro_batch_tokens=training.micro_batch_tokens,
        activation_checkpointing=training.activation_checkpointing,
    )
