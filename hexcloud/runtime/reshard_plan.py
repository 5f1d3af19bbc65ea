"""plan_reshard: who sends what to whom, so that one layout becomes another. Pure; every rank computes the same plan.

The intervals of both layouts cut each tensor into segments that are held and wanted as a whole; segments with the same
holders and takers are one pattern. Laws: every wanted element arrives once per rank; an element that a node lacks
crosses to that node once and is passed on inside it; nothing that a node holds crosses to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.reshard_layout import ITEM_BYTES, Integers, Layout

CHUNK_BYTES = 4 << 20
"""Most bytes of one move: small enough that copies spread over all who hold them."""

Flags = NDArray[np.bool_]

_Form = tuple[int, int, tuple[bytes | None, ...]]
"""Size, chunk, and what each rank holds before and after."""


@dataclass(frozen=True)
class Segments:
    """Intervals of a tensor, in elements."""

    starts: Integers
    lengths: Integers
    size: int
    """Elements of all."""


@dataclass(frozen=True)
class Move:
    """Parts of one tensor from a rank to a rank (the same one: a copy at home)."""

    tensor: str
    dtype: str
    """Type on the way: the smaller one of the two layouts'."""
    segments: Segments
    source: int
    target: int

    @property
    def bytes(self) -> int:
        """Bytes on the way."""
        return self.segments.size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class ReshardPlan:
    """All moves, by kind."""

    source: Layout
    target: Layout
    nodes: tuple[int, ...]
    """Node of each rank."""
    own: tuple[Move, ...]
    """A rank holds already what it wants."""
    sent: tuple[Move, ...]
    """From the source's buffers to another rank; crosses nodes only where the whole node lacks it."""
    passed: tuple[Move, ...]
    """From the target's buffers of a rank to another rank of its node, once `sent` is through."""

    def crossing_bytes(self) -> dict[int, int]:
        """Return bytes that reach each node from others."""
        arrived = dict.fromkeys(self.nodes, 0)
        for move in self.crossing():
            arrived[self.nodes[move.target]] += move.bytes
        return arrived

    def crossing(self) -> list[Move]:
        """Return the moves between nodes."""
        return [move for move in self.sent if self.nodes[move.source] != self.nodes[move.target]]


def plan_reshard(source: Layout, target: Layout, nodes: tuple[int, ...], chunk_bytes: int = CHUNK_BYTES) -> ReshardPlan:
    """Plan the change. `nodes` names the node of every rank of the one world that both layouts speak of.

    Raises EngineError when the layouts are of different worlds or tensors, or nobody holds what is wanted.
    """
    if not len(source.shards) == len(target.shards) == len(nodes):
        raise EngineError(f"reshard: worlds of {len(source.shards)}, {len(target.shards)}, {len(nodes)} ranks")
    _check_tensors(source, target)
    known: dict[_Form, list[_Pattern]] = {}
    demands = [one for name in target.tensors for one in _demands(name, source, target, chunk_bytes, known)]
    # Those that one node alone can serve come first: the others then even out what that left.
    demands.sort(key=lambda demand: len({nodes[rank] for rank in demand.pattern.holders}))
    router = _Router(nodes)
    for demand in demands:
        router.serve(demand)
    return ReshardPlan(source, target, nodes, tuple(router.own), tuple(router.sent), tuple(router.passed))


@dataclass(frozen=True)
class _Pattern:
    """Segments with the same holders and the same takers."""

    segments: Segments
    holders: tuple[int, ...]
    takers: tuple[int, ...]


@dataclass(frozen=True)
class _Demand:
    """A pattern of one tensor."""

    tensor: str
    dtype: str
    pattern: _Pattern

    def move(self, source: int, target: int) -> Move:
        return Move(self.tensor, self.dtype, self.pattern.segments, source, target)


@dataclass
class _Router:
    """Picks the sender that has sent least, node first, then rank."""

    nodes: tuple[int, ...]
    own: list[Move] = field(default_factory=list)
    sent: list[Move] = field(default_factory=list)
    passed: list[Move] = field(default_factory=list)
    _node_load: dict[int, int] = field(default_factory=dict)
    _load: dict[int, int] = field(default_factory=dict)
    _taken: dict[int, int] = field(default_factory=dict)

    def serve(self, demand: _Demand) -> None:
        self.own += [demand.move(rank, rank) for rank in demand.pattern.takers if rank in demand.pattern.holders]
        wanting = sorted(
            set(demand.pattern.takers) - set(demand.pattern.holders), key=lambda rank: (self.nodes[rank], rank)
        )
        for node, takers in groupby(wanting, key=lambda rank: self.nodes[rank]):
            self._bring(demand, node, list(takers))

    def _bring(self, demand: _Demand, node: int, wanting: list[int]) -> None:
        near = [rank for rank in demand.pattern.holders if self.nodes[rank] == node]
        if near:
            for rank in wanting:
                self._send(demand.move(min(near, key=self._rank_key), rank))
            return
        entry = min(wanting, key=lambda rank: (self._taken.get(rank, 0), rank))
        self._send(demand.move(min(demand.pattern.holders, key=self._node_key), entry))
        self.passed += [demand.move(entry, rank) for rank in wanting if rank != entry]

    def _rank_key(self, rank: int) -> tuple[int, int]:
        return self._load.get(rank, 0), rank

    def _node_key(self, rank: int) -> tuple[int, int, int]:
        return self._node_load.get(self.nodes[rank], 0), *self._rank_key(rank)

    def _send(self, move: Move) -> None:
        self.sent.append(move)
        self._load[move.source] = self._load.get(move.source, 0) + move.bytes
        self._taken[move.target] = self._taken.get(move.target, 0) + move.bytes
        here, there = self.nodes[move.source], self.nodes[move.target]
        if here != there:
            self._node_load[here] = self._node_load.get(here, 0) + move.bytes


def _demands(
    name: str, source: Layout, target: Layout, chunk_bytes: int, known: dict[_Form, list[_Pattern]]
) -> list[_Demand]:
    """Return what must move of a tensor, at most `chunk_bytes` each. Layers that are cut alike share their patterns."""
    dtype = _way_dtype(name, source, target)
    chunk = max(2, chunk_bytes // ITEM_BYTES[dtype])
    form = _form(name, source, target, chunk)
    if form not in known:
        known[form] = list(_patterns(name, source, target, chunk // 2))
    return [_Demand(name, dtype, pattern) for pattern in known[form]]


def _form(name: str, source: Layout, target: Layout, chunk: int) -> _Form:
    held = (shard.holdings.get(name) for shard in (*source.shards, *target.shards))
    rows = tuple(None if one is None else one.starts.tobytes() + one.lengths.tobytes() for one in held)
    return target.tensors[name].size, chunk, rows


def _patterns(name: str, source: Layout, target: Layout, step: int) -> Iterator[_Pattern]:
    """Yield the patterns of a tensor in parts of at most two steps, cut at least every `step` elements."""
    cuts = _cuts(name, source, target, step)
    holds, wants = _held(name, source, cuts), _held(name, target, cuts)
    lost = wants.any(axis=0) & ~holds.any(axis=0)
    if lost.any():
        raise EngineError(f"reshard: no rank holds {name} from element {cuts[int(lost.argmax())]} on")
    lengths = np.diff(cuts)
    for columns in _alike(np.concatenate([holds, wants])):
        holders, takers = (tuple(np.flatnonzero(flags[:, columns[0]]).tolist()) for flags in (holds, wants))
        if not takers:
            continue
        # What begins within the same step is one part: shorter than a step, and one segment more.
        begins = np.cumsum(lengths[columns]) - lengths[columns]
        for part in np.split(columns, np.flatnonzero(np.diff(begins // step)) + 1):
            yield _Pattern(Segments(cuts[part], lengths[part], int(lengths[part].sum())), holders, takers)


def _cuts(name: str, source: Layout, target: Layout, step: int) -> Integers:
    """Return every element at which some holding begins or ends, and one every `step`."""
    edges = [np.arange(0, target.tensors[name].size, step, dtype=np.int64), np.array([target.tensors[name].size])]
    for shard in (*source.shards, *target.shards):
        if held := shard.holdings.get(name):
            edges += [held.starts, held.starts + held.lengths]
    return np.unique(np.concatenate(edges))


def _held(name: str, layout: Layout, cuts: Integers) -> Flags:
    """Return [ranks, segments]: does the rank hold the segment?"""
    flags = np.zeros((len(layout.shards), len(cuts) - 1), dtype=np.bool_)
    for rank, shard in enumerate(layout.shards):
        if held := shard.holdings.get(name):
            change = np.zeros(len(cuts), dtype=np.int32)
            np.add.at(change, np.searchsorted(cuts, held.starts), 1)
            np.add.at(change, np.searchsorted(cuts, held.starts + held.lengths), -1)
            flags[rank] = np.cumsum(change[:-1]) > 0
    return flags


def _alike(flags: Flags) -> list[Integers]:
    """Return the indices of equal columns, each list ascending."""
    packed = np.ascontiguousarray(np.packbits(flags, axis=0).T)
    keys = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, kinds = np.unique(keys, return_inverse=True)
    order = np.argsort(kinds, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1) if len(order) else []


def _way_dtype(name: str, source: Layout, target: Layout) -> str:
    before, after = source.tensors[name].dtype, target.tensors[name].dtype
    return before if ITEM_BYTES[before] < ITEM_BYTES[after] else after


def _check_tensors(source: Layout, target: Layout) -> None:
    for name, spec in target.tensors.items():
        known = source.tensors.get(name)
        if known is None or known.shape != spec.shape:
            found = "is not there" if known is None else f"has shape {known.shape}"
            raise EngineError(f"reshard: {name} of shape {spec.shape} is wanted, and {found} in the source")
