"""The memory of prices: what it keeps, and what no bad answer takes away."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.adapters.store import SqlitePrices
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Voucher
from hexcloud.domain.row import Belief, Part, Row

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[SqlitePrices]:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    yield prices
    prices.close()


def row(price: float, **odd: Any) -> Row:
    facts: dict[str, Any] = {
        "cloud": "aws",
        "region": "us-east-1",
        "zone": "use1-az1",
        "instance_type": "p5.48xlarge",
        "tenure": "spot",
        "gpu": "H100",
        "gpu_count": 8,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_gb_per_s": 400,
        "price": price,
        "as_of": NOON.isoformat(),
        "source": "aws",
    }
    return Row(**{**facts, **odd})


def believed(price: float, **odd: Any) -> Belief:
    return Belief(row=row(price, **odd), outcome=Outcome.ACCEPT)


def part(at: datetime, **odd: Any) -> Part:
    facts: dict[str, Any] = {"source": "aws", "cloud": "aws", "region": "us-east-1", "as_of": at, "content": str(at)}
    return Part(**{**facts, **odd})


P5 = row(1).id


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
    doubt = Belief(row=row(9.0), outcome=Outcome.QUARANTINE, rule="step", field="price", reason="fell by 55 %")
    assert prices.save_part(part(NOON + HOUR), (doubt,)) == 0
    assert [one.row.price for one in prices.current()] == [20.0]
    (held,) = prices.held()
    assert (held.offer_id, held.rule, held.list_price, held.content) == (P5, "step", 9.0, str(NOON + HOUR))


def test_a_row_waits_since_it_was_first_held_and_no_longer_when_it_is_freed(prices: SqlitePrices) -> None:
    doubt = Belief(row=row(9.0), outcome=Outcome.QUARANTINE, rule="step", field="price", reason="fell by 55 %")
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
    (kept,) = prices.doubts("aws")
    assert math.isnan(kept.row.price) and math.isinf(kept.row.gpu_count)
    assert prices.doubts("gcp") == ()


def test_quotas_vouchers_and_rates_come_back(prices: SqlitePrices) -> None:
    quota = Quota(key="aws/us-east-1/L-417A185B", left=96, limit=192)
    prices.save_part(part(NOON, quotas=(quota,)), ())
    assert prices.quotas() == (quota,)
    voucher = Voucher(offer_id=P5, by="user", note="asked them", at_s=1.0)
    prices.vouch(voucher)
    assert prices.vouchers() == (voucher,)
    prices.save_rate("EUR", 1.08, 1.0)
    prices.save_rate("EUR", 1.10, 2.0)
    assert prices.rates() == {"EUR": 1.10}


def test_the_mark_moves_with_everything_a_market_is_made_from(prices: SqlitePrices) -> None:
    marks = [prices.mark()]
    prices.save_part(part(NOON), (believed(20.0),))
    marks.append(prices.mark())
    prices.vouch(Voucher(offer_id=P5, by="user", at_s=1.0))
    marks.append(prices.mark())
    prices.save_rate("EUR", 1.08, 1.0)
    marks.append(prices.mark())
    assert len(set(marks)) == 4
    assert prices.mark() == marks[-1]


def test_history_answers_for_a_pattern(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0), believed(22.0, zone="use1-az2")))
    assert len(prices.history(OfferId("aws/us-east-1/*/p5.48xlarge/spot"))) == 2


def test_a_store_of_the_version_before_prices_gets_its_tables(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "old.db"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE schema (version INTEGER NOT NULL)")
        old.execute("INSERT INTO schema VALUES (1)")
    old.close()
    prices = SqlitePrices(path)
    assert prices.save_part(part(NOON), (believed(20.0),)) == 1
    prices.close()


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
