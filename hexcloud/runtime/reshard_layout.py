"""Layout: which rank holds which intervals of which tensor, and where in its own buffers. Pure; no torch.

Every tensor is looked at as its elements in row-major order, 0 to size - 1. A holding maps intervals of that order to
places in a rank's buffer, so flat shards, shards along any dimension, copies and fused projections are all one thing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.errors import EngineError

Integers = NDArray[np.int64]

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1}
"""Bytes of an element, by torch's name of its type."""


@dataclass(frozen=True)
class TensorSpec:
    """A whole tensor."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name of it; one of ITEM_BYTES."""

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Holding:
    """Disjoint intervals of one tensor, ascending, and where a rank's flattened buffer has them. All in elements."""

    buffer: str
    starts: Integers
    lengths: Integers
    offsets: Integers

    def locate(self, starts: Integers) -> Integers:
        """Return the places in the buffer of elements that are held."""
        index = np.searchsorted(self.starts, starts, side="right") - 1
        return self.offsets[index] + starts - self.starts[index]


@dataclass(frozen=True)
class Shard:
    """All that one rank holds."""

    buffers: Mapping[str, tuple[int, ...]]
    """Shape of each buffer. What no holding covers is padding."""
    holdings: Mapping[str, Holding]
    """By tensor."""


EMPTY = Shard({}, {})


@dataclass(frozen=True)
class Layout:
    """What each rank of a world holds; ranks outside a gang hold nothing."""

    tensors: Mapping[str, TensorSpec]
    shards: tuple[Shard, ...]
    """By rank."""

    def check(self) -> None:
        """Raise EngineError when intervals overlap, leave their tensor or their buffer."""
        for rank, shard in enumerate(self.shards):
            for name, held in shard.holdings.items():
                stops, ends = held.starts + held.lengths, held.offsets + held.lengths
                room = prod(shard.buffers[held.buffer])
                if (held.starts[1:] < stops[:-1]).any() or (held.lengths <= 0).any():
                    raise EngineError(f"layout: rank {rank} has intervals of {name} that overlap or are empty")
                is_inside = held.starts[0] >= 0 and stops[-1] <= self.tensors[name].size
                if not is_inside or held.offsets.min() < 0 or ends.max() > room:
                    raise EngineError(f"layout: rank {rank} holds {name} outside of the tensor or of {held.buffer}")


def interval(buffer: str, start: int, stop: int, offset: int = 0) -> Holding:
    """Return one interval [start, stop)."""
    return Holding(buffer, np.array([start]), np.array([stop - start]), np.array([offset]))


def block(buffer: str, shape: tuple[int, ...], dim: int, span: tuple[int, int], offset: int = 0) -> Holding:
    """Return the elements with span[0] <= index along `dim` < span[1], packed row-major at an offset of the buffer."""
    inner, low, high = prod(shape[dim + 1 :]), *span
    rows = np.arange(prod(shape[:dim]), dtype=np.int64)
    length = (high - low) * inner
    return Holding(buffer, (rows * shape[dim] + low) * inner, np.full_like(rows, length), rows * length + offset)


def world(tensors: Mapping[str, TensorSpec], size: int, members: Mapping[int, Shard]) -> Layout:
    """Return the layout of a world of `size` ranks in which only these hold anything."""
    return Layout(tensors, tuple(members.get(rank, EMPTY) for rank in range(size)))


def sharded(tensors: Mapping[str, TensorSpec], size: int, ranks: Sequence[int], dim: int = 0) -> Layout:
    """Cut every tensor along one dimension as torch.chunk and FSDP2 do: ceil(length / ranks) each, the last ones less.

    Tensors of fewer dimensions are cut along their last; scalars are copied to every rank.
    """
    members = {rank: _dim_shard(tensors, place, len(ranks), dim) for place, rank in enumerate(ranks)}
    return world(tensors, size, members)


def flat(tensors: Mapping[str, TensorSpec], size: int, ranks: Sequence[int], buffer: str = "flat") -> Layout:
    """Lay all tensors of a type end to end and cut that row evenly: one flat parameter per type, as FSDP1 has it."""
    kinds: dict[str, list[str]] = {}
    for name, spec in tensors.items():
        kinds.setdefault(spec.dtype, []).append(name)
    members: dict[int, Shard] = {}
    for place, rank in enumerate(ranks):
        buffers: dict[str, tuple[int, ...]] = {}
        holdings: dict[str, Holding] = {}
        for dtype, names in kinds.items():
            total = sum(tensors[name].size for name in names)
            low, high = total * place // len(ranks), total * (place + 1) // len(ranks)
            buffers[f"{buffer}.{dtype}"] = (high - low,)
            holdings |= _flat_shard(f"{buffer}.{dtype}", [(name, tensors[name].size) for name in names], low, high)
        members[rank] = Shard(buffers, holdings)
    return world(tensors, size, members)


def replicated(tensors: Mapping[str, TensorSpec], size: int, ranks: Sequence[int]) -> Layout:
    """Give every rank everything."""
    whole = Shard(
        {name: spec.shape for name, spec in tensors.items()},
        {name: interval(name, 0, spec.size) for name, spec in tensors.items() if spec.size},
    )
    return world(tensors, size, dict.fromkeys(ranks, whole))


def hybrid(tensors: Mapping[str, TensorSpec], size: int, groups: Sequence[Sequence[int]]) -> Layout:
    """Shard along dimension 0 inside each group of ranks, every group with a copy of its own (HSDP)."""
    members = {rank: _dim_shard(tensors, place, len(group), 0) for group in groups for place, rank in enumerate(group)}
    return world(tensors, size, members)


def _dim_shard(tensors: Mapping[str, TensorSpec], place: int, count: int, dim: int) -> Shard:
    buffers: dict[str, tuple[int, ...]] = {}
    holdings: dict[str, Holding] = {}
    for name, spec in tensors.items():
        if not spec.shape:
            buffers[name], holdings[name] = (), interval(name, 0, 1)
            continue
        axis = min(dim, len(spec.shape) - 1)
        length = spec.shape[axis]
        step = -(-length // count)
        low, high = min(place * step, length), min((place + 1) * step, length)
        buffers[name] = (*spec.shape[:axis], high - low, *spec.shape[axis + 1 :])
        if prod(buffers[name]):
            holdings[name] = block(name, spec.shape, axis, (low, high))
    return Shard(buffers, holdings)


def _flat_shard(buffer: str, row: list[tuple[str, int]], low: int, high: int) -> dict[str, Holding]:
    """Return what of the tensors in a row (name, size) lies in [low, high) of it."""
    held: dict[str, Holding] = {}
    begin = 0
    for name, size in row:
        start, stop = max(low, begin), min(high, begin + size)
        if start < stop:
            held[name] = interval(buffer, start - begin, stop - begin, start - low)
        begin += size
    return held
