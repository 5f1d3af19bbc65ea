"""The code of a delta: where two rows of 16-bit words differ, and by what. Pure; vectorised; one block at a time.

A block is a head, positions and values. Positions are a bitmap, or gaps of 8, 16 or 32 bits where the largest symbol
says "so many more, and go on"; values are zigzag differences of the words as integers (one step of a bf16 is 1 or 2),
in 8 bits with an escape, or 16. Each block takes what is smallest. Little-endian.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.errors import EngineError

BLOCK_WORDS = 1 << 20
"""Words of a block: 2 MiB, small enough for caches, and its head is nothing beside its content."""

Words = NDArray[np.uint16]
Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]

_HEAD = struct.Struct("<BBIII")
"""How positions and values are written; number of changes; bytes of positions; bytes of values."""
_BITMAP, _GAPS8, _GAPS16, _GAPS32 = range(4)
_STEPS8, _STEPS16 = range(2)
_Unsigned = np.dtype[np.unsignedinteger]
_GAP_TYPES: dict[int, _Unsigned] = {_GAPS8: np.dtype("<u1"), _GAPS16: np.dtype("<u2"), _GAPS32: np.dtype("<u4")}
_ESCAPE = 255


@dataclass(frozen=True)
class _Part:
    kind: int
    content: bytes


def encode(base: Words, new: Words) -> bytes:
    """Return the code of a block: two rows of one length, at most BLOCK_WORDS."""
    differs = np.empty(len(base) + len(base) // 8 + 1, dtype=np.bool_)
    flags, differs[len(base) :] = differs[: len(base)], True
    np.not_equal(base, new, out=flags)
    count = int(np.count_nonzero(flags))
    if not count:
        return _HEAD.pack(0, 0, 0, 0, 0)
    # numpy guesses a branch for every flag unless over a tenth is set: from two percent on, a tail of ones is faster.
    positions = np.flatnonzero(differs if 48 * count > len(base) else flags)[:count]
    where = _encode_positions(positions, flags)
    steps = _encode_steps(new.take(positions) - base.take(positions))
    head = _HEAD.pack(where.kind, steps.kind, count, len(where.content), len(steps.content))
    return head + where.content + steps.content


def patch(words: Words, code: bytes) -> None:
    """Turn a block of the base into the new one, in place.

    Raises EngineError when the code is not one for a row of this length; the row may be changed in part then.
    """
    try:
        where, steps, count, where_bytes, step_bytes = _HEAD.unpack_from(code)
        if len(code) != _HEAD.size + where_bytes + step_bytes or count > len(words):
            raise EngineError("delta: a block has another length than it says")
        if not count:
            return
        middle = _HEAD.size + where_bytes
        positions = _decode_positions(_Part(where, code[_HEAD.size : middle]), len(words))
        changes = _decode_steps(_Part(steps, code[middle:]), count)
        if len(positions) != count:
            raise EngineError(f"delta: {len(positions)} positions for {count} changes")
        words[positions] = words.take(positions) + changes
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise EngineError(f"delta: a block is damaged: {error}") from error


def _encode_positions(positions: Positions, flags: Flags) -> _Part:
    """Write where changes are, as positions or as flags, which are the same."""
    if 8 * len(positions) >= len(flags):
        return _Part(_BITMAP, np.packbits(flags).tobytes())
    places = positions.astype(np.int32)
    gaps = np.empty_like(places)
    gaps[0] = places[0]
    np.subtract(places[1:], places[:-1], out=gaps[1:])
    gaps[1:] -= 1
    sizes = {_BITMAP: -(-len(flags) // 8)}
    for kind, dtype in _GAP_TYPES.items():
        most = int(np.iinfo(dtype).max)
        large = gaps[gaps >= most]
        sizes[kind] = dtype.itemsize * (len(gaps) + (int((large // most).sum()) if len(large) else 0))
    kind = min(sizes, key=lambda one: sizes[one])
    if kind == _BITMAP:
        return _Part(kind, np.packbits(flags).tobytes())
    return _Part(kind, _encode_gaps(gaps, _GAP_TYPES[kind]))


def _encode_gaps(gaps: NDArray[np.int32], dtype: _Unsigned) -> bytes:
    most = int(np.iinfo(dtype).max)
    if int(gaps.max()) < most:
        return gaps.astype(dtype).tobytes()
    more, rest = np.divmod(gaps, most)
    symbols = np.full(len(gaps) + int(more.sum()), most, dtype=dtype)
    symbols[np.cumsum(more + 1) - 1] = rest
    return symbols.tobytes()


def _decode_positions(part: _Part, length: int) -> Positions:
    if part.kind == _BITMAP:
        bits = np.unpackbits(np.frombuffer(part.content, np.uint8), count=length)
        return np.flatnonzero(bits.view(np.bool_))
    dtype = _GAP_TYPES[part.kind]
    symbols = np.frombuffer(part.content, dtype)
    is_last = symbols != np.iinfo(dtype).max
    positions = np.cumsum(symbols.astype(np.int64) + is_last) - 1
    if not is_last.all():
        positions = positions[is_last]
    if len(positions) and positions[-1] >= length:
        raise EngineError(f"delta: a position is {positions[-1]} of {length}")
    return positions


def _encode_steps(changes: Words) -> _Part:
    signed = changes.view(np.int16)
    zigzag = ((signed << 1) ^ (signed >> 15)).view(np.uint16) - np.uint16(1)  # a change is never 0
    large = zigzag >= _ESCAPE
    escapes = int(large.sum())
    if len(zigzag) + 2 * escapes >= 2 * len(zigzag):
        return _Part(_STEPS16, changes.astype("<u2").tobytes())
    symbols = zigzag.astype(np.uint8)
    if not escapes:
        return _Part(_STEPS8, symbols.tobytes())
    symbols[large] = _ESCAPE
    return _Part(_STEPS8, symbols.tobytes() + changes[large].astype("<u2").tobytes())


def _decode_steps(part: _Part, count: int) -> Words:
    if part.kind == _STEPS16:
        return np.frombuffer(part.content, "<u2", count).astype(np.uint16)
    if part.kind != _STEPS8:
        raise EngineError(f"delta: values of an unknown kind {part.kind}")
    symbols = np.frombuffer(part.content, np.uint8, count)
    zigzag = symbols.astype(np.uint16) + np.uint16(1)
    changes: Words = (zigzag >> np.uint16(1)) ^ (np.uint16(0) - (zigzag & np.uint16(1)))
    if len(part.content) > count:
        changes[symbols == _ESCAPE] = np.frombuffer(part.content, "<u2", offset=count)
    elif (symbols == _ESCAPE).any():
        raise EngineError("delta: a value is missing")
    return changes
