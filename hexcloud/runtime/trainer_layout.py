"""What each rank of the trainer holds: weights, moments and buffers by name, for fsdp, hsdp and tp. Pure; no torch.

It says the same as FSDP2 and DTensor do (tests compare them), so that a change of size can be planned by ranks that are
not there yet.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind
from hexcloud.runtime.reshard_layout import (
    EMPTY,
    Holding,
    Layout,
    Shard,
    TensorSpec,
    hybrid,
    interval,
    replicated,
    sharded,
    world,
)

COLUMN_PARALLEL = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
ROW_PARALLEL = frozenset({"o_proj", "down_proj"})
COPIED = "buffer."
"""Tensors of these names are on every rank."""


def trainer_layout(tensors: Mapping[str, TensorSpec], formation: Formation, size: int, places: Sequence[int]) -> Layout:
    """Return what ranks hold in a world of `size`, in which `places` are the formation's ranks in order."""
    copied = {name: spec for name, spec in tensors.items() if name.startswith(COPIED)}
    cut = {name: spec for name, spec in tensors.items() if name not in copied}
    return _joined(tensors, _cut(cut, formation, size, places), replicated(copied, size, places))


def _cut(tensors: Mapping[str, TensorSpec], formation: Formation, size: int, places: Sequence[int]) -> Layout:
    step = formation.ranks
    machines = [places[start : start + step] for start in range(0, len(places), step)]
    if formation.kind is LayoutKind.FSDP:
        return sharded(tensors, size, places)
    if formation.kind is LayoutKind.HSDP:
        return hybrid(tensors, size, machines)
    members = {
        rank: _tile(tensors, (index, formation.machines), (place, step))
        for index, machine in enumerate(machines)
        for place, rank in enumerate(machine)
    }
    return world(tensors, size, members)


def _joined(tensors: Mapping[str, TensorSpec], one: Layout, other: Layout) -> Layout:
    pairs = zip(one.shards, other.shards, strict=True)
    shards = (Shard({**a.buffers, **b.buffers}, {**a.holdings, **b.holdings}) for a, b in pairs)
    return Layout(tensors, tuple(shard if shard.buffers else EMPTY for shard in shards))


def _tile(tensors: Mapping[str, TensorSpec], machine: tuple[int, int], rank: tuple[int, int]) -> Shard:
    """Return the part of a rank (index, of how many) on a machine: tensor parallel first, then along dimension 0."""
    buffers: dict[str, tuple[int, ...]] = {}
    holdings: dict[str, Holding] = {}
    for name, spec in tensors.items():
        spans = [(0, length) for length in spec.shape]
        dim = _parallel_dim(name)
        if dim is not None and dim < len(spans):
            spans[dim] = _chunk(spans[dim], *rank)
        spans[0] = _chunk(spans[0], *machine)
        buffers[name] = tuple(high - low for low, high in spans)
        if all(buffers[name]):
            holdings[name] = _block(name, spec.shape, spans)
    return Shard(buffers, holdings)


def _parallel_dim(name: str) -> int | None:
    """Return the dimension along which tensor parallelism cuts `weight.layers.0.mlp.up_proj.weight`; None: not at all.

    The bias of a row-parallel projection is added once, so every rank has all of it.
    """
    module, kind = name.split(".")[-2:]
    if module in COLUMN_PARALLEL:
        return 0
    return 1 if module in ROW_PARALLEL and kind == "weight" else None


def _chunk(span: tuple[int, int], index: int, count: int) -> tuple[int, int]:
    low, high = span
    step = -(-(high - low) // count)
    return min(low + index * step, high), min(low + (index + 1) * step, high)


def _block(name: str, shape: tuple[int, ...], spans: list[tuple[int, int]]) -> Holding:
    """Return a block of the first two dimensions of a tensor, packed row-major; a vector is one row."""
    if len(shape) == 1:
        return interval(name, *spans[0])
    (top, bottom), (left, right), width = spans[0], spans[1], shape[1]
    inner = int(np.prod(shape[2:], dtype=np.int64))
    if (left, right) == (0, width):
        return interval(name, top * width * inner, bottom * width * inner)
    rows = np.arange(top, bottom, dtype=np.int64)
    length = (right - left) * inner
    return Holding(name, (rows * width + left) * inner, np.full_like(rows, length), (rows - top) * length)
