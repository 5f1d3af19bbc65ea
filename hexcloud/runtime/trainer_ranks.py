"""Ranks: the trainer's processes as one group. One rank alone needs no group, no socket and no copy.

gloo on CPUs, NCCL beside it where there are GPUs. What we say between ranks is bytes; torch's checkpoints exchange
pickled plans, so the ranks of a gang trust each other.
"""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, Precision, TrainingSpec

TIMEOUT = timedelta(minutes=15)
"""A rank that waits longer for the others ends: one of them is gone. A step, the writing of weights and the move of a
state to another size take less. Where a machine is gone the coordinator says so much sooner."""


@dataclass(frozen=True)
class Ranks:
    """One rank's view of all."""

    rank: int
    formation: Formation
    mesh: DeviceMesh | None = None
    """[machines, ranks of each], or [ranks] for fsdp; None for a rank that has nothing to share."""
    device: str = "cpu"

    @property
    def size(self) -> int:
        """All ranks."""
        return self.formation.size

    @property
    def data_ranks(self) -> int:
        """Ranks with samples of their own: those of one machine share them under tensor parallelism."""
        return self.formation.data_ranks

    @property
    def data_rank(self) -> int:
        """This rank's place among them."""
        return self.rank // (self.size // self.data_ranks)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks of a small CPU tensor."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def tell(self, message: bytes | None) -> bytes:
        """Return rank 0's message on every rank."""
        if self.size == 1:
            assert message is not None
            return message
        length = torch.tensor([len(message or b"")])
        dist.broadcast(length, 0)
        room = bytearray(message or int(length))
        if room:
            dist.broadcast(torch.frombuffer(room, dtype=torch.uint8), 0)
        return bytes(room)


ALONE = Ranks(0, Formation(LayoutKind.FSDP, 1, 1))
"""A rank without others."""


def join(store: Store | None, rank: int, formation: Formation, settings: TrainingSpec) -> Ranks:
    """Form the group with all other ranks of the store; waits for them. `store` may be None for one rank.

    Raises torch's errors when they do not come.
    """
    device = _device(rank % formation.ranks)
    if formation.size == 1 and settings.precision is not Precision.BF16:
        return Ranks(rank, formation, device=device)
    dist.init_process_group(
        None if device != "cpu" else "gloo",
        store=store or HashStore(),
        rank=rank,
        world_size=formation.size,
        timeout=TIMEOUT,
    )
    is_flat = formation.kind is LayoutKind.FSDP
    shape = (formation.size,) if is_flat else (formation.machines, formation.ranks)
    names = ("ranks",) if is_flat else ("machines", "ranks")
    mesh = init_device_mesh(device.partition(":")[0], shape, mesh_dim_names=names)
    return Ranks(rank, formation, mesh, device)


def leave() -> None:
    """Dissolve the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _device(place: int) -> str:
    """Return the GPU of this rank on its machine, if the machine has any."""
    if not torch.cuda.is_available():
        return "cpu"
    torch.cuda.set_device(place)
    return f"cuda:{place}"
