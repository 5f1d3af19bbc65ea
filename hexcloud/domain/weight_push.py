"""Weights pushed into engines that run: who takes part, and what comes."""

from hexcloud.domain.frozen import Frozen


class UpdateGroup(Frozen):
    """A collective of one sender, rank 0, and the ranks of all engines that receive from it."""

    name: str
    address: str
    """Where the sender waits for the others."""
    port: int
    world_size: int
    """The sender and every rank of every engine."""
    backend: str
    """`nccl` between GPUs, `gloo` between CPUs."""


class TensorSpec(Frozen):
    """One tensor that is about to come, under the name that Hugging Face gives it."""

    name: str
    dtype: str
    """As torch spells it: `bfloat16`."""
    shape: tuple[int, ...]
