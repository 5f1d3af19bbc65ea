"""Formation: how the trainer's ranks stand on machines, and over how many of them each thing is cut."""

from dataclasses import dataclass

from hexcloud.domain.training import LayoutKind


@dataclass(frozen=True)
class Formation:
    """How the ranks stand: `ranks` on each of `machines`, in this order."""

    kind: LayoutKind
    machines: int
    ranks: int

    @classmethod
    def flat(cls, ranks: int) -> "Formation":
        """Return ranks that share everything, wherever they stand."""
        return cls(LayoutKind.FSDP, 1, ranks)

    @property
    def size(self) -> int:
        """All ranks."""
        return self.machines * self.ranks

    @property
    def tensor(self) -> int:
        """Ranks that share each layer's matrix products."""
        return self.ranks if self.kind is LayoutKind.TP else 1

    @property
    def data_ranks(self) -> int:
        """Ranks with samples of their own: those that share a layer's products share its samples too."""
        return self.size // self.tensor

    @property
    def shards(self) -> int:
        """Ranks over which weights, gradients and moments are cut; under tensor parallelism what is left of them."""
        return self.ranks if self.kind is LayoutKind.HSDP else self.size // self.tensor
