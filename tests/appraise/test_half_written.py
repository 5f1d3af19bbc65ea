from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hexcloud.appraise.half_written import Short, is_cut_short, problem_of
from hexcloud.domain.market import Quota
from hexcloud.domain.row import Part, Row

MakeRow = Callable[..., Row]


def part(rows: list[Row], **odd: object) -> Part:
    made = Part(source="aws", cloud="aws", region="us-east-1", as_of=datetime(2026, 7, 1, tzinfo=UTC), rows=tuple(rows))
    return made.model_copy(update=odd)


@pytest.mark.parametrize(("now", "last", "is_good"), [(5, 10, True), (4, 10, False), (10, 10, True), (40, 10, True)])
def test_an_answer_of_less_than_half_the_last_prices_is_half_written(
    row: MakeRow, now: int, last: int, is_good: bool
) -> None:
    problem = problem_of(part([row(zone=str(number)) for number in range(now)]), last)
    assert (problem == "") is is_good
    assert (
        is_good
        or problem
        == f"aws: aws/us-east-1 listed {now} prices where it had {last}: half-written; the last good {last} stand"
    )


def test_an_empty_answer_never_replaces_anything(row: MakeRow) -> None:
    assert problem_of(part([]), 10) == "aws: aws/us-east-1 answered without a single price; the last good 10 stand"
    assert problem_of(part([], region="*"), 0).startswith("aws: aws answered without a single price; there is nothing")


@pytest.mark.parametrize("price", [float("nan"), 0.0, float("inf")])
def test_lines_without_a_price_do_not_make_an_answer(row: MakeRow, price: float) -> None:
    assert "half-written" in problem_of(part([row(price=price, zone=str(n)) for n in range(9)] + [row()]), 10)
    assert problem_of(part([row(price=price)]), 10)


def test_quotas_alone_are_an_answer_where_nothing_was_for_sale_before() -> None:
    quotas = (Quota(key="aws/us-east-1/L-1", left=8),)
    assert problem_of(part([], quotas=quotas), 0) == ""
    assert problem_of(part([], quotas=quotas), 3)


def test_the_sources_own_problem_is_told_as_it_stands(row: MakeRow) -> None:
    assert problem_of(part([row()], problem="aws: credentials expired"), 1) == "aws: credentials expired"


def test_a_region_that_really_shrank_is_believed_when_another_answer_says_so_again(row: MakeRow) -> None:
    rows = [row(zone=str(number)) for number in range(3)]
    short = Short(prices=3, content="monday")
    assert problem_of(part(rows, content="tuesday"), 10, short) == ""
    assert problem_of(part(rows, content="monday"), 10, short), "the same answer once more says nothing new"
    assert problem_of(part(rows[:1], content="tuesday"), 10, short), "this one is still shorter"


@pytest.mark.parametrize(
    ("listed", "is_short"), [(("a", "b", "new"), False), (("a",), True), ((), True), (("x", "y", "z"), True)]
)
def test_a_list_with_less_than_half_of_the_known_regions_closes_none(listed: tuple[str, ...], is_short: bool) -> None:
    assert is_cut_short(listed, ("a", "b", "c", "d")) is is_short


def test_where_no_region_was_known_no_list_is_too_short() -> None:
    assert not is_cut_short((), ())
