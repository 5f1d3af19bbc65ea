"""The memory of prices: what it keeps, and what no bad answer takes away."""

import math
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from hexcloud.adapters.store import SqlitePrices
from hexcloud.adapters.store.engine import engine_of
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Voucher
from hexcloud.domain.row import Belief
from tests.adapters.store.listings import HOUR, NOON, P5, believed, part, row, waiting


def test_a_price_is_a_change_only_when_it_is_another_one(prices: SqlitePrices) -> None:
    assert prices.save_part(part(NOON), (believed(20.0),)) == 1
    assert prices.save_part(part(NOON + HOUR), (believed(20.0),)) == 0
    assert prices.save_part(part(NOON + 2 * HOUR), (believed(21.0),)) == 1
    first, second = prices.history(P5)
    assert (first.usd_per_hour, first.at_s, first.confirmed_s) == (
        20.0,
        NOON.timestamp(),
        (NOON + HOUR).timestamp(),
    )
    assert (second.usd_per_hour, second.confirmed_s) == (21.0, (NOON + 2 * HOUR).timestamp())
    assert [one.row.price for one in prices.current()] == [21.0]


def test_an_offer_that_a_region_no_longer_lists_is_gone_and_its_past_is_kept(prices: SqlitePrices) -> None:
    other = believed(5.0, instance_type="g5.48xlarge")
    prices.save_part(part(NOON), (believed(20.0), other))
    assert prices.save_part(part(NOON + HOUR), (other,)) == 1
    assert [one.row.instance_type for one in prices.current()] == ["g5.48xlarge"]
    assert [change.usd_per_hour for change in prices.history(P5)] == [20.0, None]


def test_another_region_and_another_source_touch_nothing(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    prices.save_part(part(NOON, region="eu-west-1"), ())
    prices.save_part(part(NOON, source="skypilot"), (believed(19.0, source="skypilot"),))
    assert [(one.row.source, one.row.price) for one in prices.current()] == [("aws", 20.0), ("skypilot", 19.0)]


def test_a_failed_answer_keeps_the_last_good_one_and_is_noted(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    assert prices.save_part(part(NOON + HOUR, problem="timed out"), ()) == 0
    (noted,) = prices.refreshes()
    assert (noted.problem, noted.good_s, noted.at_s, noted.rows) == (
        "timed out",
        NOON.timestamp(),
        (NOON + HOUR).timestamp(),
        1,
    )
    assert [one.row.price for one in prices.current()] == [20.0]
    prices.save_part(part(NOON + 2 * HOUR), (believed(20.0),))
    assert prices.refreshes()[0].problem == ""


def test_a_row_under_doubt_is_still_listed_so_its_last_good_price_stays(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    doubt = waiting(9.0)
    assert prices.save_part(part(NOON + HOUR), (doubt,)) == 0
    assert [one.row.price for one in prices.current()] == [20.0]
    (held,) = prices.held()
    assert (held.offer_id, held.rule, held.list_price, held.content) == (P5, "step", 9.0, str(NOON + HOUR))


def test_a_row_waits_since_it_was_first_held_and_no_longer_when_it_is_freed(prices: SqlitePrices) -> None:
    doubt = waiting(9.0)
    prices.save_part(part(NOON), (doubt,))
    prices.save_part(part(NOON + HOUR), (doubt,))
    assert prices.held()[0].at_s == NOON.timestamp()
    prices.save_part(part(NOON + 2 * HOUR), (believed(9.0),))
    assert prices.held() == ()


def test_a_rejected_row_may_hold_any_number(prices: SqlitePrices) -> None:
    bad = Belief(
        row=row(math.nan, gpu_count=math.inf), outcome=Outcome.REJECT, rule="no_price", field="price", reason="no price"
    )
    prices.save_part(part(NOON), (bad,))
    (kept,) = prices.doubts()
    assert math.isnan(kept.row.price) and math.isinf(kept.row.gpu_count)


def test_quotas_vouchers_and_rates_come_back(prices: SqlitePrices) -> None:
    quota = Quota(key="aws/us-east-1/L-417A185B", left=96, limit=192)
    prices.save_part(part(NOON, quotas=(quota,)), ())
    assert prices.quotas() == (quota.model_copy(update={"as_of": NOON}),), "with the moment at which it was so"
    voucher = Voucher(offer_id=P5, by="user", note="asked them", at_s=1.0)
    prices.vouch(voucher)
    assert prices.vouchers() == (voucher,)
    prices.save_rate("EUR", 1.08, 1.0)
    prices.save_rate("EUR", 1.10, 2.0)
    assert prices.rates() == {"EUR": 1.10}


def test_the_mark_moves_with_everything_that_is_written_whatever_the_clocks_of_sources_say(
    prices: SqlitePrices,
) -> None:
    eu, ago = "eu-west-1", NOON - 24 * HOUR
    writings: tuple[Callable[[], object], ...] = (
        lambda: prices.save_part(part(NOON), (believed(20.0),)),
        lambda: prices.save_part(part(NOON, region=eu), (believed(20.0, region=eu),)),
        lambda: prices.save_part(part(ago, source="list"), (believed(20.0, source="list"),)),
        lambda: prices.save_part(part(NOON, problem="timed out"), ()),
        lambda: prices.vouch(Voucher(offer_id=P5, by="user", at_s=1.0)),
        lambda: prices.save_rate("EUR", 1.08, 1.0),
        lambda: prices.save_rate("EUR", 1.09, 1.0),
        lambda: prices.save_past(()),
    )
    marks = [prices.mark()]
    for write in writings:
        write()
        marks.append(prices.mark())
    assert marks == list(range(marks[0], marks[0] + len(writings) + 1))
    assert prices.mark() == prices.book().mark == marks[-1]


@pytest.mark.parametrize("listed", [1, 60])
def test_the_book_is_read_in_one_transaction_with_as_many_questions_however_much_there_is(
    prices: SqlitePrices, tmp_path: Path, listed: int
) -> None:
    rows = tuple(believed(20.0, zone=f"z{number}", currency="EUR") for number in range(listed))
    prices.save_part(part(NOON, quotas=(Quota(key="aws/us-east-1/L-1", left=8),)), (*rows, waiting(9.0)))
    prices.save_rate("EUR", 1.1, 0.0)
    asked: list[str] = []
    engine = engine_of((tmp_path / "hexcloud.db").resolve())
    event.listen(engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    book = prices.book()
    assert sorted(one for one in asked if not one.startswith("SELECT")) == ["BEGIN"]
    assert len(asked) <= 7
    assert (book.current, book.doubts, book.rates) == (prices.current(), prices.doubts(), prices.rates())
    assert (book.refreshes, book.quotas) == (prices.refreshes(), prices.quotas())
    assert len(book.current) == listed


def test_what_a_source_said_last_is_each_row_once_with_its_outcome(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0), believed(21.0, zone="use1-az2")))
    prices.save_part(part(NOON, source="list"), (believed(19.0, source="list"),))
    prices.save_part(part(NOON + HOUR), (waiting(9.0), believed(21.0, zone="use1-az2")))
    assert [(one.row.price, one.outcome.value) for one in prices.said("aws")] == [(9.0, "quarantine"), (21.0, "accept")]
    assert [one.row.price for one in prices.current() if one.row.source == "aws"] == [20.0, 21.0], "the old one stands"


def test_history_answers_for_a_pattern(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0), believed(22.0, zone="use1-az2")))
    assert len(prices.history(OfferId("aws/us-east-1/*/p5.48xlarge/spot"))) == 2


def test_a_store_of_the_version_before_prices_gets_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _make(path, "CREATE TABLE schema (version INTEGER NOT NULL); INSERT INTO schema VALUES (1);")
    prices = SqlitePrices(path)
    assert prices.save_part(part(NOON), (believed(20.0),)) == 1
    prices.close()


VERSION_2 = """
CREATE TABLE schema (version INTEGER NOT NULL);
INSERT INTO schema VALUES (2);
CREATE TABLE price_changes (number INTEGER NOT NULL PRIMARY KEY, source VARCHAR NOT NULL, offer_id VARCHAR NOT NULL,
    at_s FLOAT NOT NULL, confirmed_s FLOAT NOT NULL, list_price FLOAT, currency VARCHAR NOT NULL, usd_per_hour FLOAT);
CREATE INDEX price_changes_by_offer ON price_changes (offer_id, source, number);
CREATE TABLE refreshes (source VARCHAR NOT NULL, cloud VARCHAR NOT NULL, region VARCHAR NOT NULL, at_s FLOAT NOT NULL,
    good_s FLOAT, rows INTEGER NOT NULL, problem TEXT NOT NULL, short_prices INTEGER NOT NULL,
    short_content VARCHAR NOT NULL, PRIMARY KEY (source, cloud, region));
INSERT INTO refreshes VALUES ('aws', 'aws', 'us-east-1', 5.0, 5.0, 40, '', 0, '');
CREATE TABLE quotas ("key" VARCHAR NOT NULL PRIMARY KEY, at_s FLOAT NOT NULL, body TEXT NOT NULL);
INSERT INTO quotas VALUES ('aws/us-east-1/L-1', 5.0, '{"key":"aws/us-east-1/L-1","left":8.0,"limit":8.0}');
"""


def test_a_store_of_the_version_before_the_mark_keeps_what_it_knows(tmp_path: Path) -> None:
    path, l2 = tmp_path / "old.db", Quota(key="aws/us-east-1/L-2", left=8)
    _make(path, VERSION_2)
    prices = SqlitePrices(path)
    (known,) = prices.refreshes()
    assert (known.good_s, known.rows, known.priced, known.complete) == (5.0, 40, 40, False)
    assert [(quota.left, quota.as_of) for quota in prices.quotas()] == [
        (8.0, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
    ]
    before = prices.mark()
    assert prices.save_part(part(NOON, complete=True, quotas=(l2,)), (believed(20.0),)) == 1
    assert prices.mark() > before
    assert [quota.key for quota in prices.quotas()] == [l2.key], "whose limits the old ones were is known"
    assert prices.refreshes()[0].complete
    prices.close()
    again = SqlitePrices(path)
    assert [one.row.price for one in again.current()] == [20.0]
    again.close()


def _make(path: Path, script: str) -> None:
    with sqlite3.connect(path) as old:
        old.executescript(script)
    old.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([None, 10.0, 11.0]), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_last_change_of_every_offer_is_what_is_current(
    tmp_path_factory: pytest.TempPathFactory, answers: list[list[float | None]]
) -> None:
    prices = SqlitePrices(tmp_path_factory.mktemp("prices") / "hexcloud.db")
    for hour, answer in enumerate(answers):
        beliefs = [believed(price, zone=f"z{zone}") for zone, price in enumerate(answer) if price is not None]
        prices.save_part(part(NOON + hour * HOUR), tuple(beliefs))
    last = {change.offer_id: change.usd_per_hour for change in prices.history(OfferId("*"))}
    current = {one.row.id: one.row.price for one in prices.current()}
    assert current == {name: price for name, price in last.items() if price is not None}
    prices.close()


def test_of_two_prices_of_one_offer_the_dearer_counts_in_any_order(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0), believed(22.0)))
    prices.save_part(part(NOON + HOUR), (believed(22.0), believed(20.0)))
    assert [change.usd_per_hour for change in prices.history(P5)] == [22.0]
