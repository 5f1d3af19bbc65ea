"""World: the trainer's ranks, wherever they are."""

from pydantic import Field

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.training import PASS_TOKENS, LayoutKind, TrainingSpec


class GangPlan(Frozen):
    """What the plan in force makes of the trainer."""

    machines: int = Field(gt=0)
    layout: LayoutKind
    pass_tokens: int = Field(default=PASS_TOKENS, gt=0)
    """In which so many machines have room for it, in passes of at most so many tokens; then more of them have, too."""


class World(Frozen):
    """The ranks of the trainer, told to rank 0 with its batches and to each machine of the gang with its orders."""

    generation: int = 0
    """Counts the worlds of a coordinator's life; a rank of an earlier one is of no use any more."""
    nodes: tuple[NodeId, ...]
    """Machines in order of rank; the head is first."""
    ranks: int = Field(default=1, gt=0)
    """Processes on each."""
    layout: LayoutKind = LayoutKind.FSDP
    """How the state spreads over them: the coordinator's word, whatever a machine was told that came later."""
    pass_tokens: int = Field(default=PASS_TOKENS, gt=0)
    """Most tokens of a forward pass of a rank: its word too, as each pass is one of all ranks."""
    before: tuple[NodeId, ...] = ()
    """Machines of the world before, whose ranks live and hold the state. Empty: all ranks begin anew, from the newest
    checkpoint."""
    store: str = ""
    """`host:port` where rank 0 is met; empty until it is known."""

    def settings(self, told: TrainingSpec) -> TrainingSpec:
        """Return a rank's settings with what must be alike on all of them; machines may be told by different plans."""
        return told.model_copy(update={"layout": self.layout, "micro_batch_tokens": self.pass_tokens})

    def sign_of_life(self, place: int) -> str:
        """Return the name of the file that a process of a machine leaves in its folder once it is up."""
        return f"up-{self.generation}-{place}"

    @property
    def size(self) -> int:
        """All ranks."""
        return len(self.nodes) * self.ranks

    @property
    def union(self) -> tuple[NodeId, ...]:
        """Machines whose ranks make the change to this world: those of before, then those that join."""
        return (*self.before, *(node for node in self.nodes if node not in self.before))
