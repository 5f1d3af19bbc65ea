"""World: the trainer's ranks, wherever they are."""

from pydantic import Field

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.training import LayoutKind


class World(Frozen):
    """The ranks of the trainer, told to rank 0 with its batches and to each machine of the gang with its orders."""

    generation: int = 0
    """Counts the worlds of a coordinator's life; a rank of an earlier one is of no use any more."""
    nodes: tuple[NodeId, ...]
    """Machines in order of rank; the head is first."""
    ranks: int = Field(default=1, gt=0)
    """Processes on each."""
    layout: LayoutKind = LayoutKind.FSDP
    """How the state spreads over them: the head's word, whatever a machine was told that came later."""
    micro_batch_tokens: int | None = None
    """Of one forward pass, and"""
    activation_checkpointing: bool | None = None
    """are the head's word too: ranks whose passes differ would wait for each other for ever. None: nobody was told."""
    before: tuple[NodeId, ...] = ()
    """Machines of the world before, whose ranks live and hold the state. Empty: all ranks begin anew, from the newest
    checkpoint."""
    store: str = ""
    """`host:port` where rank 0 is met; empty until it is known."""

    @property
    def size(self) -> int:
        """All ranks."""
        return len(self.nodes) * self.ranks

    @property
    def union(self) -> tuple[NodeId, ...]:
        """Machines whose ranks make the change to this world: those of before, then those that join."""
        return (*self.before, *(node for node in self.nodes if node not in self.before))
