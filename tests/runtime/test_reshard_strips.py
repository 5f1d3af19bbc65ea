import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.runtime.reshard_strips import Strip, strips

PIECES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2)), max_size=30)


def unfolded(folded: list[Strip]) -> list[tuple[int, int]]:
    return [
        (strip.from_start + turn * strip.from_step + place, strip.to_start + turn * strip.to_step + place)
        for strip in folded
        for turn in range(strip.count)
        for place in range(strip.length)
    ]


@given(pieces=PIECES)
def test_folding_changes_no_copy_and_no_order(pieces: list[tuple[int, int, int]]) -> None:
    lengths = np.array([length for length, _, _ in pieces], dtype=np.int64)
    begins, ends = (
        np.cumsum(lengths) - lengths + np.cumsum([piece[side] for piece in pieces], dtype=np.int64) for side in (1, 2)
    )
    copies = [
        (begin + place, end + place)
        for begin, end, length in zip(begins.tolist(), ends.tolist(), lengths.tolist(), strict=True)
        for place in range(length)
    ]
    assert unfolded(strips(begins, ends, lengths)) == copies


@given(pieces=st.lists(st.tuples(*[st.integers(0, 20)] * 2), max_size=20), length=st.integers(1, 3))
def test_no_strip_goes_backwards(pieces: list[tuple[int, int]], length: int) -> None:
    """No library has views with negative strides."""
    begins, ends = (np.array([piece[side] for piece in pieces], dtype=np.int64) for side in (0, 1))
    folded = strips(begins, ends, np.full(len(pieces), length))
    assert all(strip.from_step >= 0 and strip.to_step >= 0 for strip in folded)
    assert unfolded(folded) == [(b + place, e + place) for b, e in pieces for place in range(length)]


def test_evenly_spaced_pieces_are_one_strip() -> None:
    rows = np.arange(1000)
    assert strips(rows * 64, rows * 8, np.full(1000, 8)) == [Strip(8, 1000, 0, 64, 0, 8)]


def test_a_ragged_piece_at_either_end_costs_a_strip_each() -> None:
    begins = np.concatenate([[3], 64 + 64 * np.arange(1000), [64_064]])
    lengths = np.concatenate([[5], np.full(1000, 8), [2]])
    assert len(strips(begins, np.cumsum(lengths) - lengths, lengths)) <= 4


def test_pieces_that_touch_are_one() -> None:
    assert strips(np.array([4, 6]), np.array([0, 2]), np.array([2, 5])) == [Strip(7, 1, 4, 7, 0, 7)]
