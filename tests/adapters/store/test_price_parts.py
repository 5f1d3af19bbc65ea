"""A region's answer is kept whole, and neither an older nor a worse one takes anything away."""

import pytest

from hexcloud.adapters.store import SqlitePrices
from hexcloud.domain.market import Quota
from hexcloud.domain.offer import OfferId
from tests.adapters.store.listings import HOUR, NOON, P5, believed, part, row, waiting

L1, L2 = Quota(key="aws/us-east-1/L-1", left=8), Quota(key="aws/us-east-1/L-2", left=8)


def keys(prices: SqlitePrices) -> list[str]:
    return [quota.key for quota in prices.quotas()]


def test_an_answer_older_than_the_last_good_one_changes_nothing(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON, quotas=(L1,)), (believed(50.0), waiting(9.0, zone="use1-az2")))
    before = prices.book()
    assert prices.save_part(part(NOON - 300 * HOUR, quotas=(L2,)), (believed(60.0),)) is None
    assert prices.save_part(part(NOON - HOUR, problem="timed out"), ()) is None
    assert prices.book()._replace(mark=0) == before._replace(mark=0)
    assert [change.usd_per_hour for change in prices.history(P5)] == [50.0]


def test_an_answer_as_old_as_the_last_good_one_is_taken_again(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (waiting(9.0),))
    assert prices.save_part(part(NOON), (believed(9.0),)) == 1, "a file that did not change is judged anew"


def test_another_source_or_region_may_be_older(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(50.0),))
    assert prices.save_part(part(NOON - HOUR, source="list"), (believed(60.0, source="list"),)) == 1
    assert prices.save_part(part(NOON - HOUR, region="eu-west-1"), (believed(60.0, region="eu-west-1"),)) == 1


def test_a_good_answer_that_a_wrong_clock_dated_into_the_future_stops_no_later_one(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON + 9999 * HOUR), (believed(50.0),))
    assert prices.save_part(part(NOON), (believed(60.0),), latest_s=(NOON + HOUR).timestamp()) == 1
    assert prices.refreshes()[0].good_s == NOON.timestamp()


def test_a_good_answer_replaces_the_limits_of_its_region_and_no_others(prices: SqlitePrices) -> None:
    elsewhere = Quota(key="aws/eu-west-1/L-1", left=8)
    prices.save_part(part(NOON, region="eu-west-1", quotas=(elsewhere,)), ())
    prices.save_part(part(NOON, quotas=(L1, L2)), ())
    assert keys(prices) == [elsewhere.key, L1.key, L2.key]
    prices.save_part(part(NOON + HOUR, problem="timed out"), ())
    prices.save_part(part(NOON + HOUR, source="list"), (believed(20.0, source="list"),))
    prices.save_part(part(NOON + HOUR, complete=True), (believed(20.0),))
    assert keys(prices) == [elsewhere.key, L1.key, L2.key], "who knows no limits takes none away"
    prices.save_part(part(NOON + 2 * HOUR, quotas=(L2,)), ())
    assert keys(prices) == [elsewhere.key, L2.key]
    assert [quota.as_of for quota in prices.quotas()] == [NOON, NOON + 2 * HOUR]


def test_it_is_noted_how_many_prices_an_answer_had_believed_or_not(prices: SqlitePrices) -> None:
    rows = (row(20.0), row(9.0, zone="b"), row(0.0, zone="c"), row(float("nan"), zone="d"))
    prices.save_part(part(NOON, rows=rows, complete=True), (believed(20.0), waiting(9.0, zone="b")))
    prices.save_part(part(NOON + HOUR, problem="timed out"), ())
    (noted,) = prices.refreshes()
    assert (noted.rows, noted.priced, noted.complete) == (1, 2, True), "of the last good answer"


@pytest.mark.parametrize(("problem", "short", "left"), [("timed out", 0, 4), ("half-written", 3, 3)])
def test_a_half_written_answer_is_remembered_until_a_good_or_another_half_written_one(
    prices: SqlitePrices, problem: str, short: int, left: int
) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    prices.save_part(part(NOON + HOUR, problem="half-written", short_prices=4, content="x"), ())
    prices.save_part(part(NOON + 2 * HOUR, problem=problem, short_prices=short, content="y"), ())
    (noted,) = prices.refreshes()
    assert (noted.short_prices, noted.short_content) == (left, "y" if short else "x")
    prices.save_part(part(NOON + 3 * HOUR), (believed(20.0),))
    assert prices.refreshes()[0].short_prices == 0


def test_an_empty_answer_closes_a_region(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON, quotas=(L1,)), (believed(20.0), waiting(9.0, zone="b")))
    assert prices.save_part(part(NOON + HOUR), ()) == 1
    assert (prices.current(), prices.doubts(), prices.quotas()) == ((), (), ())
    assert [change.usd_per_hour for change in prices.history(OfferId("*"))] == [20.0, None]
