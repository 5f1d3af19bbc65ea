from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.gate import gate
from hexcloud.appraise.known import Known
from hexcloud.appraise.scores import scores_of, with_last_score
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]


def spot(row: MakeRow, at: str, **odd: Any) -> Row:
    return row(**{"tenure": "spot", "price": 14.0, "as_of": at, **odd})


def scored(row: MakeRow, score: int = 1, **odd: Any) -> Known:
    at = "2026-07-20T12:00:00+00:00"
    return Known(scores=scores_of([spot(row, at, placement_score=score, scored_as_of=at, **odd)]))


def test_a_low_score_still_counts_when_the_cloud_does_not_answer_again(row: MakeRow) -> None:
    (belief,) = gate([spot(row, "2026-07-20T13:00:00+00:00")], scored(row))
    assert belief.rule == "low_placement_score"
    assert (belief.row.placement_score, belief.row.scored_as_of) == (1, "2026-07-20T12:00:00+00:00")


@pytest.mark.parametrize(
    ("at", "score"),
    [
        ("2026-07-21T12:00:00+00:00", 1),
        ("2026-07-21T12:00:01+00:00", None),
        ("2026-07-20T11:00:00+00:00", None),
        ("soon", None),
    ],
)
def test_a_score_holds_for_a_day_from_when_it_was_given(row: MakeRow, at: str, score: int | None) -> None:
    assert with_last_score(spot(row, at), scored(row)).placement_score == score


def test_handing_a_score_on_makes_it_no_younger(row: MakeRow) -> None:
    once = with_last_score(spot(row, "2026-07-21T11:00:00+00:00"), scored(row))
    again = with_last_score(spot(row, "2026-07-21T13:00:00+00:00"), Known(scores=scores_of([once])))
    assert once.placement_score == 1 and again.placement_score is None


def test_a_new_score_counts_and_another_sources_or_zones_does_not(row: MakeRow) -> None:
    at = "2026-07-20T13:00:00+00:00"
    assert with_last_score(spot(row, at, placement_score=9), scored(row)).placement_score == 9
    assert with_last_score(spot(row, at, source="tracker"), scored(row)).placement_score is None
    assert with_last_score(spot(row, at, zone="b"), scored(row)).placement_score is None
