"""Strips: long lists of copies between two rows of elements, folded into few strided ones. Pure."""

from dataclasses import dataclass

import numpy as np

from hexcloud.runtime.reshard_layout import Integers


@dataclass(frozen=True)
class Strip:
    """`count` pieces of `length` elements; the k-th is at start + k * step on either side."""

    length: int
    count: int
    from_start: int
    from_step: int
    to_start: int
    to_step: int


def strips(from_offsets: Integers, to_offsets: Integers, lengths: Integers) -> list[Strip]:
    """Fold copies: those that touch on both sides become one, evenly spaced ones of a length become one strip."""
    if len(lengths) == 1:
        size, begin, end = int(lengths[0]), int(from_offsets[0]), int(to_offsets[0])
        return [Strip(size, 1, begin, size, end, size)]
    if not len(lengths):
        return []
    touches = (np.diff(from_offsets) == lengths[:-1]) & (np.diff(to_offsets) == lengths[:-1])
    firsts = np.flatnonzero(np.concatenate([[True], ~touches]))
    begins, ends, sizes = from_offsets[firsts], to_offsets[firsts], np.add.reduceat(lengths, firsts)
    folded, at = [], 0
    for stop in _run_stops(begins, ends, sizes):
        from_step, to_step = (
            (int(row[at + 1] - row[at]) if stop - at > 1 else int(sizes[at])) for row in (begins, ends)
        )
        folded.append(Strip(int(sizes[at]), stop - at, int(begins[at]), from_step, int(ends[at]), to_step))
        at = stop
    return folded


def _run_stops(begins: Integers, ends: Integers, sizes: Integers) -> list[int]:
    """Return where runs of one size and one spacing, not backwards, stop; the last stop is the end."""
    backwards = (np.diff(begins) < 0) | (np.diff(ends) < 0)
    breaks = (np.diff(sizes) != 0) | backwards
    changes = (np.diff(begins, 2) != 0) | (np.diff(ends, 2) != 0)
    stops, at = [], 0
    marks = np.flatnonzero(breaks | np.concatenate([[False], changes])[: len(breaks)]) + 1
    for mark in marks.tolist():
        # The gap before a run's second piece is its own spacing: a change there is none.
        if mark > at and not (mark == at + 1 and not breaks[mark - 1]):
            stops.append(mark)
            at = mark
    return [*stops, len(sizes)]
