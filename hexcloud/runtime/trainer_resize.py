"""A change of the trainer's size: its state moves between ranks that stay, leave and join, without a checkpoint.

All of them form one group for it. What each held and will hold follows from layouts, so those who join need nothing but
the numbers of ranks. The start is the same: rank 0 holds everything, and all will hold their parts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from hexcloud.domain.formation import Formation
from hexcloud.runtime.reshard import Traffic, allocate, describe, reshard
from hexcloud.runtime.reshard_layout import TensorSpec, replicated
from hexcloud.runtime.reshard_plan import plan_reshard
from hexcloud.runtime.trainer_layout import COPIED, trainer_layout
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_state import TrainingState


@dataclass(frozen=True)
class Side:
    """The trainer before or after a change."""

    formation: Formation
    places: tuple[int, ...]
    """Its ranks, in order, as ranks of the group that makes the change."""


@dataclass(frozen=True)
class Change:
    """One change as everybody of its group knows it."""

    tensors: Mapping[str, TensorSpec]
    before: Side
    after: Side
    machines: tuple[int, ...]
    """Of each rank of the group."""


def carry_out(change: Change, rank: int, parts: Mapping[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    """Return the parts that this rank of the group will hold; `parts` are those it held. The whole group calls it."""
    before, after = (
        trainer_layout(change.tensors, side.formation, len(change.machines), side.places)
        for side in (change.before, change.after)
    )
    plan = plan_reshard(before, after, change.machines)
    got = allocate(plan.target, rank, device)
    reshard(plan, parts, got)
    return got


def spread(state: TrainingState, ranks: Ranks, whole: Mapping[str, torch.Tensor] | None) -> Traffic | None:
    """Fill the state's tensors of these names from rank 0, which has them whole; `whole` is None elsewhere.

    The names are weights, buffers and reference: all but Adam's moments.
    """
    specs = {name: spec for name, spec in describe(state.tensors()).items() if not name.startswith("exp_avg")}
    parts = state.buffers()
    if ranks.size == 1:
        assert whole is not None
        for name in specs:
            parts[name].copy_(whole[name])
        return None
    places = tuple(range(ranks.size))
    source = replicated(specs, ranks.size, (0,))
    target = trainer_layout(specs, ranks.formation, ranks.size, places)
    machines = tuple(rank // ranks.formation.ranks for rank in places)
    moved = {name: one.to(ranks.device).contiguous() for name, one in (whole or {}).items() if name in specs}
    return reshard(plan_reshard(source, target, machines), moved, parts)


def take(state: TrainingState, parts: dict[str, torch.Tensor]) -> None:
    """Copy parts of a change into a state that was just built; they are freed one by one."""
    for name, room in state.buffers().items():
        room.copy_(parts.pop(name))


def whole_of(model: torch.nn.Module, prefix: str = "weight.") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a whole model's weights, and its buffers unless it is a reference, by the names of a TrainingState."""
    for name, weight in model.named_parameters():
        yield prefix + name, weight.detach()
    if prefix == "weight.":
        for name, buffer in model.named_buffers():
            yield COPIED + name, buffer
