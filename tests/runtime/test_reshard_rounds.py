from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.runtime.reshard_plan import Move, Segments
from hexcloud.runtime.reshard_rounds import messages, rounds

MOST = 64
LANES = st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda ends: ends[0] != ends[1])
MOVES = st.lists(st.tuples(LANES, st.integers(1, MOST // 4), st.sampled_from(["uint8", "float32"])), max_size=40)


def row(size: int) -> Segments:
    return Segments(np.array([0]), np.array([size]), size)


def moves(drawn: list[tuple[tuple[int, int], int, str]]) -> list[Move]:
    return [
        Move(f"w{index}", dtype, row(length if dtype == "uint8" else (length + 3) // 4), *ends)
        for index, (ends, length, dtype) in enumerate(drawn)
    ]


@given(drawn=MOVES)
def test_each_move_is_in_one_message_between_its_ranks(drawn: list[tuple[tuple[int, int], int, str]]) -> None:
    given_moves = moves(drawn)
    batches = messages(given_moves, MOST)
    packed = Counter(
        (move.tensor, batch.source, batch.target, batch.dtype) for batch in batches for move in batch.moves
    )
    assert packed == Counter((move.tensor, move.source, move.target, move.dtype) for move in given_moves)
    assert all(batch.bytes <= MOST for batch in batches)
    assert all(batch.bytes == sum(move.bytes for move in batch.moves) for batch in batches)


@given(drawn=MOVES)
def test_no_rank_has_more_on_the_way_than_the_bound(drawn: list[tuple[tuple[int, int], int, str]]) -> None:
    batches = messages(moves(drawn), MOST // 2)
    turns = rounds(batches, MOST)
    assert sorted(map(id, batches)) == sorted(id(batch) for turn in turns for batch in turn)
    for turn in turns:
        load: Counter[int] = Counter()
        for batch in turn:
            load.update({batch.source: batch.bytes, batch.target: batch.bytes})
        assert turn
        assert max(load.values()) <= MOST


def test_messages_between_two_ranks_keep_their_order() -> None:
    same = [Move(f"w{index}", "uint8", row(30), 0, 1) for index in range(6)]
    turns = rounds(messages(same, 30), 64)
    assert [move.tensor for turn in turns for batch in turn for move in batch.moves] == [f"w{n}" for n in range(6)]


def test_pairs_that_share_no_rank_go_at_once() -> None:
    apart = [Move("w", "uint8", row(60), source, source + 1) for source in (0, 2, 4)]
    assert len(rounds(messages(apart, 60), 64)) == 1


def test_a_message_over_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        rounds(messages([Move("w", "uint8", row(65), 0, 1)], 65), 64)
