"""How the trainer cuts work: samples are dealt to ranks and laid side by side into passes. Pure; only lengths matter.

The trainer packs its batches by it, and the estimator packs typical batches by it: a plan counts the very passes that
are made.
"""

import heapq
from collections.abc import Sequence
from typing import Protocol, TypeVar

LEAST_WIDTH = 64
"""Tokens of a row at least: short samples fill a row with less waste when several share it (measured: 95 % of a row of
64 is used where 80 % of one of 19 are, at 0.8 times the time)."""

WIDEST_SHARED = 4096
"""Tokens of a row up to which samples share it: the mask that keeps them apart has a byte for each pair of tokens."""


class HasLength(Protocol):
    """Whatever takes a number of tokens of a row."""

    @property
    def length(self) -> int:
        """Tokens."""


One = TypeVar("One", bound=HasLength)


def split(samples: Sequence[One], updates: int) -> list[Sequence[One]]:
    """Cut a batch into minibatches, at most as many as there are samples."""
    size = -(-len(samples) // min(updates, len(samples)))
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def deal(samples: Sequence[One], ranks: int) -> list[list[One]]:
    """Give each sample, longest first, to the rank with the fewest tokens so far."""
    hands: list[list[One]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]
    for one in sorted(samples, key=lambda one: -one.length):
        load, rank = loads[0]
        hands[rank].append(one)
        heapq.heapreplace(loads, (load + one.length, rank))
    return hands


def layouts(samples: Sequence[One], most_tokens: int) -> list[list[list[One]]]:
    """Return passes as lists of rows as lists of samples, widest pass first.

    A row is as wide as its pass's longest sample, or LEAST_WIDTH; one over half as long opens a row, others fill rows.
    """
    left = sorted(samples, key=lambda one: -one.length)
    passes = []
    while left:
        width = max(left[0].length, LEAST_WIDTH)
        rows, left = _fill(left, width, max(1, most_tokens // width))
        passes.append(rows)
    return passes


def width_of(rows: Sequence[Sequence[One]]) -> int:
    """Return the tokens of a row of a pass, padding included."""
    return max((sum(one.length for one in row) for row in rows), default=1)


def _fill(samples: list[One], width: int, most_rows: int) -> tuple[list[list[One]], list[One]]:
    """Return the rows of one pass, and the samples that go into later ones."""
    rows: list[list[One]] = []
    free: list[int] = []
    left = []
    for one in samples:
        row = next((index for index, room in enumerate(free) if room >= one.length), None)
        if row is not None:
            rows[row].append(one)
            free[row] -= one.length
        elif len(rows) < most_rows and (2 * one.length > width or width == LEAST_WIDTH):
            rows.append([one])
            free.append(width - one.length if width <= WIDEST_SHARED else 0)
        else:
            left.append(one)
    return rows, left
