"""TrainerGang: which machines and ranks the trainer shall have, from what the coordinator hears of its nodes.

One change at a time. Machines that come, or are told to go, change the world while it lives; a machine or rank that is
lost takes its share of the state with it, so all ranks begin anew from the newest checkpoint. Until rank 0 says that a
change has begun nothing of the state has moved: who is told to go meanwhile is not kept waiting for those who come.
"""

from collections.abc import Iterable

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Rendezvous
from hexcloud.domain.plan import Role
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.world import GangPlan, World
from hexcloud.runtime.coordinator_nodes import KnownNode


class TrainerGang:
    """The head is always a member. Nothing is wanted before as many machines are there as were planned."""

    def __init__(self, spec: NodeSpec, nodes: Iterable[KnownNode]) -> None:
        """`spec` is the head's; `nodes` are all that the coordinator knows, at any time."""
        self.planned: GangPlan | None = None
        """By the plan in force; its layout is taken with a change of size, and moves nothing before."""
        self._spec = spec
        self._nodes = nodes
        self._world: World | None = None
        self._formed: World | None = None
        """The last that was."""
        self._is_begun = False
        """Does the state move to the wanted world?"""

    @property
    def world(self) -> World | None:
        """The world that is wanted now; None until the gang is whole for the first time."""
        staying = self._staying()
        if self._world is not None:
            self._decide(self._world, staying)
        elif len(staying) >= self._spec.gang:
            training = self._spec.training
            layout, pass_tokens = training.layout or LayoutKind.FSDP, training.pass_tokens
            self._world = World(nodes=staying, ranks=self._spec.ranks, layout=layout, pass_tokens=pass_tokens)
        return self._world

    def meet(self, told: Rendezvous) -> bool:
        """Know where rank 0 is met, and how far its world is. False: the word is late, that world is wanted no more."""
        world = self._world
        if world is None or told.generation != world.generation:
            return False
        self._world = world.model_copy(update={"store": told.store or world.store})
        self._is_begun = told.is_begun
        self._formed = self._world if told.is_formed else self._formed
        return True

    def holds(self, node: NodeId) -> bool:
        """Has a machine that is not the head a share of the state that it has yet to hand on?"""
        world = self._world
        if world is None or node == self._spec.node_id:
            return False
        return node in (world.nodes if self._is_formed else world.union)

    def restart(self) -> None:
        """Begin anew with the machines there are: a rank has died."""
        if self.world is not None:
            self._want(self._staying(), before=())

    @property
    def _is_formed(self) -> bool:
        wanted, formed = self._world, self._formed
        return wanted is not None and formed is not None and formed.generation == wanted.generation

    def _known(self) -> list[KnownNode]:
        return [node for node in self._nodes if node.role is Role.TRAINER]

    def _answering(self) -> set[NodeId]:
        return {self._spec.node_id, *(node.id for node in self._known() if not node.is_silent)}

    def _staying(self) -> tuple[NodeId, ...]:
        """Return who answers and was not told to go, those first who are there already."""
        head = self._spec.node_id
        staying = self._answering() - {node.id for node in self._known() if node.is_going and node.id != head}
        old = self._world.nodes if self._world else (head,)
        return (*(node for node in old if node in staying), *sorted(staying - set(old)))

    def _decide(self, world: World, staying: tuple[NodeId, ...]) -> None:
        members, holders = (world.nodes, world.nodes) if self._is_formed else (world.union, world.before)
        lost, leaving = set(members) - self._answering(), set(world.nodes) - set(staying)
        if lost and (self._is_begun or lost & set(holders)):
            self._want(staying, before=())
        elif self._is_formed:
            if staying != world.nodes:
                self._want(staying, before=world.nodes)
        elif lost:
            # Who was lost before it had joined held nothing: the change is made without it.
            self._want(staying, before=world.before)
        elif holders and leaving and not self._is_begun:
            # Those who come join with the next change: they may take long to start.
            nodes = tuple(node for node in holders if node in staying) if leaving & set(holders) else staying
            self._want(nodes, before=world.before)

    def _want(self, nodes: tuple[NodeId, ...], before: tuple[NodeId, ...]) -> None:
        assert self._world is not None
        # Rank 0 lives on through a live change, and so does the place where it is met.
        store = self._world.store if before else ""
        changes = {"generation": self._world.generation + 1, "nodes": nodes, "before": before, "store": store}
        model = self._model(len(nodes))
        shape = {"layout": model.layout, "pass_tokens": model.pass_tokens}
        self._world = self._world.model_copy(update={**changes, **shape})
        self._is_begun = False

    def _model(self, machines: int) -> World | GangPlan:
        """Return whose layout so many machines take: the plan's if they are another number, and as many as it needs.

        A gang grows in the layout that it has until it is as large as planned, and shrinks in the planned one.
        """
        stood, planned = self._formed or self._world, self.planned
        assert stood is not None
        return planned if planned is not None and len(stood.nodes) != machines >= planned.machines else stood
