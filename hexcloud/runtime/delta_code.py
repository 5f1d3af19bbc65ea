"""The code of a delta: where two rows of 16-bit words differ, and by what. Pure; vectorised; one block at a time.

A block is a head, places and steps. Few changes: places are gaps of 8, 16 or 32 bits, where the largest symbol says "so
many more, and go on". Many: two bits for every word (a step down, same, a step up, other), as most changes of a bf16
are of one step. Steps, of all changes or of the others, are zigzag differences of the words as integers, in 8 bits with
an escape, or 16. Little-endian.
"""

import struct
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.errors import EngineError

BLOCK_WORDS = 1 << 18
"""Words of a block: half a MiB, small enough for caches, and its head is nothing beside its content."""

Words = NDArray[np.uint16]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Positions = NDArray[np.int64]

_HEAD = struct.Struct("<BBIII")
"""How places and steps are written; number of steps; bytes of places; bytes of steps."""
_DENSE, _GAPS8, _GAPS16, _GAPS32 = range(4)
_STEPS8, _STEPS16 = range(2)
_Unsigned = np.dtype[np.unsignedinteger]
_GAP_TYPES: dict[int, _Unsigned] = {_GAPS8: np.dtype("<u1"), _GAPS16: np.dtype("<u2"), _GAPS32: np.dtype("<u4")}
_ESCAPE = 255
_DENSE_FROM = 7
"""A seventh of the words: there, two bits for each are no more than a gap and a step for those that changed."""
_TAKEN = np.uint16(2)
"""What the symbol 3, read as a step like 0, 1 and 2, adds to a word."""
_GATHER = np.uint32(1 << 24 | 1 << 18 | 1 << 12 | 1 << 6)
"""Times four symbols, each in a byte of its own: all four in the highest byte, and no two bits ever meet."""


@dataclass(frozen=True)
class _Part:
    kind: int
    content: bytes


class _Desk(threading.local):
    """A thread's arrays for the work on a block: new ones for each would cost as much as the work, in page faults."""

    def __init__(self) -> None:
        self.changes = np.empty(BLOCK_WORDS, np.uint16)
        self.ups = np.empty(BLOCK_WORDS, np.uint16)
        self.others = np.empty(BLOCK_WORDS, np.uint8)
        self.symbols = np.empty(BLOCK_WORDS, np.uint8)
        self.four = np.empty(BLOCK_WORDS // 4, "<u4")
        self.more = np.empty(BLOCK_WORDS // 4, "<u4")
        self._flags = np.empty(BLOCK_WORDS, np.bool_)

    def flags(self, length: int) -> Flags:
        """Return flags to be set, and behind them zeros up to a multiple of eight."""
        flags = self._flags[: -(-length // 8) * 8]
        flags[length:] = False
        return flags


_DESK = _Desk()


def encode(base: Words, new: Words) -> bytes:
    """Return the code of a block: two rows of one length, at most BLOCK_WORDS."""
    flags = _DESK.flags(len(base))
    np.not_equal(base, new, out=flags[: len(base)])
    if int(np.count_nonzero(flags)) * _DENSE_FROM >= len(base):
        return _encode_dense(np.subtract(new, base, out=_DESK.changes[: len(base)]))
    positions = _positions(flags)
    return _block(_encode_positions(positions), new.take(positions) - base.take(positions))


def patch(words: Words, code: bytes) -> None:
    """Turn a block of the base into the new one, in place.

    Raises EngineError when the code is not one for a row of this length; the row may be changed in part then.
    """
    try:
        where, steps, count, where_bytes, step_bytes = _HEAD.unpack_from(code)
        if len(code) != _HEAD.size + where_bytes + step_bytes or count > len(words):
            raise EngineError("delta: a block has another length than it says")
        middle = _HEAD.size + where_bytes
        places = _Part(where, code[_HEAD.size : middle])
        is_dense = where == _DENSE
        positions = _patch_dense(words, places.content) if is_dense else _decode_positions(places, len(words))
        if len(positions) != count:
            raise EngineError(f"delta: {len(positions)} places for {count} steps")
        changes = _decode_steps(_Part(steps, code[middle:]), count)
        if is_dense:
            changes -= _TAKEN
        words[positions] = words.take(positions) + changes
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise EngineError(f"delta: a block is damaged: {error}") from error


def _block(where: _Part, changes: Words) -> bytes:
    steps = _encode_steps(changes)
    head = _HEAD.pack(where.kind, steps.kind, len(changes), len(where.content), len(steps.content))
    return head + where.content + steps.content


def _encode_dense(changes: Words) -> bytes:
    """Write two bits per word, four words in a byte, and the steps of those with the symbol 3."""
    length, desk = len(changes), _DESK
    ups = np.add(changes, np.uint16(1), out=desk.ups[:length])  # a symbol, or more for others
    flags = desk.flags(length)
    np.greater(ups, 2, out=flags[:length])
    symbols = desk.symbols[: -(-length // 4) * 4]
    symbols[length:] = 0
    np.copyto(symbols[:length], ups, casting="unsafe")
    symbols[:length] |= np.negative(flags[:length].view(np.uint8), out=desk.others[:length])
    symbols &= 3
    four = np.multiply(symbols.view("<u4"), _GATHER, out=desk.four[: len(symbols) // 4])
    packed = four.view(np.uint8)[3::4]
    return _block(_Part(_DENSE, packed.tobytes()), changes.take(_positions(flags)))


def _patch_dense(words: Words, content: bytes) -> Positions:
    """Take the single steps, and _TAKEN where there is another, and return the places of the others."""
    length, desk = len(words), _DESK
    packed = np.frombuffer(content, np.uint8)
    if len(packed) != -(-length // 4):
        raise EngineError(f"delta: {len(packed)} bytes for {length} words")
    spread, shifted = desk.four[: len(packed)], desk.more[: len(packed)]
    np.multiply(packed, np.uint32(1 | 1 << 12), out=spread, dtype=np.uint32)
    np.left_shift(spread, 6, out=shifted)
    spread |= shifted
    spread &= np.uint32(0x03030303)
    symbols, ups = spread.view(np.uint8)[:length], desk.ups[:length]
    np.copyto(ups, symbols)
    words += ups
    words -= np.uint16(1)
    flags = desk.flags(length)
    np.equal(symbols, 3, out=flags[:length])
    return _positions(flags)


def _positions(flags: Flags) -> Positions:
    """Return the places of ones among flags, whose number is a multiple of eight.

    numpy guesses a branch for every flag unless over a tenth is set. Of few, the eights that hold any are found first.
    """
    if int(np.count_nonzero(flags)) * 10 > len(flags):
        return np.flatnonzero(flags)
    eights = flags.view(np.uint64)
    held = np.flatnonzero(eights != 0)
    found = np.flatnonzero(eights.take(held).view(np.bool_))
    within = found & 7
    found >>= 3
    positions: Positions = held.take(found)
    positions <<= 3
    positions |= within
    return positions


def _encode_positions(positions: Positions) -> _Part:
    places = positions.astype(np.int32)
    gaps = np.diff(places, prepend=np.int32(-1)) - np.int32(1)
    sizes = {}
    for kind, dtype in _GAP_TYPES.items():
        most = int(np.iinfo(dtype).max)
        large = gaps[gaps >= most]
        sizes[kind] = dtype.itemsize * (len(gaps) + (int((large // most).sum()) if len(large) else 0))
    kind = min(sizes, key=lambda one: sizes[one])
    return _Part(kind, _encode_gaps(gaps, _GAP_TYPES[kind]))


def _encode_gaps(gaps: NDArray[np.int32], dtype: _Unsigned) -> bytes:
    most = int(np.iinfo(dtype).max)
    if not len(gaps) or int(gaps.max()) < most:
        return gaps.astype(dtype).tobytes()
    more, rest = np.divmod(gaps, most)
    symbols = np.full(len(gaps) + int(more.sum()), most, dtype=dtype)
    symbols[np.cumsum(more + 1) - 1] = rest
    return symbols.tobytes()


def _decode_positions(part: _Part, length: int) -> Positions:
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
    zigzag = _zigzag(changes)
    zigzag -= np.uint16(1)  # a change is never 0
    large = zigzag >= _ESCAPE
    escapes = int(large.sum())
    if len(zigzag) + 2 * escapes >= 2 * len(zigzag):
        return _Part(_STEPS16, changes.astype("<u2").tobytes())
    symbols = zigzag.astype(np.uint8)
    if not escapes:
        return _Part(_STEPS8, symbols.tobytes())
    symbols[large] = _ESCAPE
    return _Part(_STEPS8, symbols.tobytes() + changes[large].astype("<u2").tobytes())


def _zigzag(changes: Words) -> Words:
    """Return 0, 1, 2, 3 ... for 0, -1, 1, -2 ..."""
    signed = changes.view(np.int16)
    zigzag = signed << 1
    zigzag ^= signed >> 15
    return zigzag.view(np.uint16)


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
