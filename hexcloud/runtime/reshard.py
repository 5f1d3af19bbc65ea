"""reshard: change a layout for another one over torch.distributed, bit-exact, with bounded buffers.

Works on any backend with point-to-point calls (gloo on CPU, NCCL on GPU). What lies in one piece on a side is sent from
or received into its place; the rest is gathered into a buffer. Two rounds are on the way at a time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
import torch.distributed as dist

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.reshard_layout import Integers, Layout, Shard, TensorSpec
from hexcloud.runtime.reshard_plan import Move, ReshardPlan
from hexcloud.runtime.reshard_rounds import Message, messages, rounds
from hexcloud.runtime.reshard_strips import Strip, strips

BUFFER_BYTES = 64 << 20
"""Most bytes of a rank's messages on the way at a time, which bounds its extra memory."""

Buffers = Mapping[str, torch.Tensor]
"""A rank's local tensors by buffer name, contiguous."""


@dataclass
class Traffic:
    """What a rank's part of a change was."""

    sent_bytes: int = 0
    received_bytes: int = 0
    crossed_bytes: int = 0
    """Received from other nodes."""
    peak_buffer_bytes: int = 0
    """Most bytes of gathered messages at a time."""


def describe(state: Mapping[str, torch.Tensor]) -> dict[str, TensorSpec]:
    """Return the specification of each tensor of a state dict; a DTensor's is that of the whole."""
    return {name: TensorSpec(tuple(one.shape), str(one.dtype).removeprefix("torch.")) for name, one in state.items()}


def allocate(layout: Layout, rank: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Return zeroed buffers for what a rank holds. Zeros stay where the layout pads."""
    shard = layout.shards[rank]
    types = {held.buffer: layout.tensors[name].dtype for name, held in shard.holdings.items()}
    return {
        name: torch.zeros(shape, dtype=getattr(torch, types.get(name, "uint8")), device=device)
        for name, shape in shard.buffers.items()
    }


def reshard(
    plan: ReshardPlan,
    source: Buffers,
    target: Buffers,
    group: dist.ProcessGroup | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Traffic:
    """Fill this rank's target buffers. Every rank of the group calls it with the same plan; returns what it moved.

    Raises EngineError when a buffer has not the size that the layout says.
    """
    rank = dist.get_rank(group)
    here = _Side(plan.source.shards[rank], source), _Side(plan.target.shards[rank], target)
    mover = _Mover(rank, plan.nodes, group, buffer_bytes)
    for move in plan.own:
        if move.source == rank:
            _copy(
                here[0].row(move), here[1].row(move), strips(here[0].at(move), here[1].at(move), move.segments.lengths)
            )
    mover.run(plan.sent, *here)
    mover.run(plan.passed, here[1], here[1])
    return mover.traffic


class _Side:
    """A rank's buffers as the rows of elements that a layout speaks of."""

    def __init__(self, shard: Shard, buffers: Buffers) -> None:
        self._shard = shard
        self._rows = {}
        for name, shape in shard.buffers.items():
            if name not in buffers or tuple(buffers[name].shape) != tuple(shape) or not buffers[name].is_contiguous():
                raise EngineError(f"reshard: buffer {name} must be there, contiguous and of shape {shape}")
            self._rows[name] = buffers[name].detach().view(-1)

    def row(self, move: Move) -> torch.Tensor:
        return self._rows[self._shard.holdings[move.tensor].buffer]

    def at(self, move: Move) -> Integers:
        return self._shard.holdings[move.tensor].locate(move.segments.starts)


@dataclass
class _Parcel:
    """A message on the way: its tensor, and what is left to do when it is there."""

    message: Message
    row: torch.Tensor
    is_gathered: bool


@dataclass
class _Mover:
    rank: int
    nodes: tuple[int, ...]
    group: dist.ProcessGroup | None
    buffer_bytes: int
    traffic: Traffic = field(default_factory=Traffic)

    def run(self, moves: Iterable[Move], source: _Side, target: _Side) -> None:
        """Send and receive this rank's part, a round ahead of the one that is waited for."""
        half = self.buffer_bytes // 2
        before: tuple[list[dist.Work], list[_Parcel]] = [], []
        for turn in rounds(messages(moves, half // 4), half):
            mine = [message for message in turn if self.rank in (message.source, message.target)]
            parcels = [self._pack(message, source, target) for message in mine]
            now = self._post(parcels), parcels
            gathered = sum(parcel.row.nbytes for _, row in (before, now) for parcel in row if parcel.is_gathered)
            self.traffic.peak_buffer_bytes = max(self.traffic.peak_buffer_bytes, gathered)
            self._finish(*before, target)
            before = now
        self._finish(*before, target)

    def _pack(self, message: Message, source: _Side, target: _Side) -> _Parcel:
        is_sender = message.source == self.rank
        side = source if is_sender else target
        whole = _in_place(message, side)
        if whole is not None:
            return _Parcel(message, whole, is_gathered=False)
        device = side.row(message.moves[0]).device
        row = torch.empty(message.size, dtype=getattr(torch, message.dtype), device=device)
        if is_sender:
            for move, start in _starts(message):
                _copy(side.row(move), row, strips(side.at(move), _packed(move, start), move.segments.lengths))
        return _Parcel(message, row, is_gathered=True)

    def _post(self, parcels: list[_Parcel]) -> list[dist.Work]:
        if not parcels:
            return []
        ops = []
        for parcel in parcels:
            message, is_sender = parcel.message, parcel.message.source == self.rank
            peer = message.target if is_sender else message.source
            ops.append(
                dist.P2POp(dist.isend if is_sender else dist.irecv, parcel.row, group=self.group, group_peer=peer)
            )
            self._count(message, is_sender)
        works: list[dist.Work] = dist.batch_isend_irecv(ops)
        return works

    def _finish(self, works: list[dist.Work], parcels: list[_Parcel], target: _Side) -> None:
        for work in works:
            work.wait()
        for parcel in parcels:
            if parcel.is_gathered and parcel.message.target == self.rank:
                for move, start in _starts(parcel.message):
                    places = strips(_packed(move, start), target.at(move), move.segments.lengths)
                    _copy(parcel.row, target.row(move), places)

    def _count(self, message: Message, is_sender: bool) -> None:
        if is_sender:
            self.traffic.sent_bytes += message.bytes
            return
        self.traffic.received_bytes += message.bytes
        if self.nodes[message.source] != self.nodes[message.target]:
            self.traffic.crossed_bytes += message.bytes


def _in_place(message: Message, side: _Side) -> torch.Tensor | None:
    """Return the part of a buffer that is the message, when it lies there in one piece and needs no conversion."""
    row = side.row(message.moves[0])
    if any(side.row(move) is not row for move in message.moves) or row.dtype != getattr(torch, message.dtype):
        return None
    offsets = np.concatenate([side.at(move) for move in message.moves])
    lengths = np.concatenate([move.segments.lengths for move in message.moves])
    if (np.diff(offsets) != lengths[:-1]).any():
        return None
    return row[int(offsets[0]) : int(offsets[0]) + message.size]


def _starts(message: Message) -> list[tuple[Move, int]]:
    """Return each move and where it begins in the message."""
    stops = accumulate(move.segments.size for move in message.moves)
    return [(move, stop - move.segments.size) for move, stop in zip(message.moves, stops, strict=True)]


def _packed(move: Move, start: int) -> Integers:
    return np.cumsum(move.segments.lengths) - move.segments.lengths + start


def _copy(source: torch.Tensor, target: torch.Tensor, places: list[Strip]) -> None:
    for strip in places:
        shape = (strip.count, strip.length)
        read = source.as_strided(shape, (strip.from_step, 1), source.storage_offset() + strip.from_start)
        write = target.as_strided(shape, (strip.to_step, 1), target.storage_offset() + strip.to_start)
        write.copy_(read)
