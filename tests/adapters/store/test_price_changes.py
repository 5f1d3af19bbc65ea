"""Price changes stay in order of time, whatever is written later, and a price that stays is true for longer."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from hexcloud.adapters.store import SqlitePrices
from hexcloud.adapters.store.engine import engine_of
from hexcloud.domain.errors import StoreError
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import PriceChange
from tests.adapters.store.listings import HOUR, NOON, P5, believed, part, row


def past(*hour_and_price: tuple[int, float], until: int = 0, **odd: Any) -> tuple[PriceChange, ...]:
    """Changes so many hours before (below 0) or after noon, each confirmed until the next, the last until `until`."""
    ends = [*(hour for hour, _ in hour_and_price[1:]), *([until] if hour_and_price else [])]
    facts: dict[str, Any] = {"offer_id": P5, "source": "aws", "currency": "USD", **odd}
    return tuple(
        PriceChange(
            at_s=(NOON + hour * HOUR).timestamp(),
            confirmed_s=(NOON + end * HOUR).timestamp(),
            usd_per_hour=price,
            list_price=price,
            **facts,
        )
        for (hour, price), end in zip(hour_and_price, ends, strict=True)
    )


def told(prices: SqlitePrices) -> list[tuple[float, float, float | None]]:
    """Hours after noon at which each price began and was last seen, and the price."""
    at_noon = NOON.timestamp()
    return [
        ((change.at_s - at_noon) / 3600, (change.confirmed_s - at_noon) / 3600, change.usd_per_hour)
        for change in prices.history(P5)
    ]


def test_a_past_comes_before_what_is_known_and_twice_the_same_adds_nothing(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    assert prices.save_past(past((-30, 18.0), (-10, 19.0), (5, 99.0))) == 2, "what is known already stands"
    assert told(prices) == [(-30, -10, 18.0), (-10, 0, 19.0), (0, 0, 20.0)], "a past price ends where the known begins"
    assert prices.save_past(past((-30, 18.0), (-10, 19.0), (5, 99.0))) == 0
    assert prices.save_past(past((-50, 17.0), (-30, 18.0), (-10, 19.0))) == 1, "a longer past adds what is older still"
    assert [price for _, _, price in told(prices)] == [17.0, 18.0, 19.0, 20.0]


def test_a_price_that_was_there_before_it_was_first_read_is_one_price(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    assert prices.save_past(past((-30, 18.0), (-10, 20.0))) == 2
    assert told(prices) == [(-30, -10, 18.0), (-10, 0, 20.0)]
    assert prices.save_past(past((-30, 18.0), (-10, 20.0))) == 0


def test_a_past_without_anything_known_is_kept_whole(prices: SqlitePrices) -> None:
    assert prices.save_past(past((-30, 18.0), (-10, 19.0))) == 2
    assert told(prices) == [(-30, -10, 18.0), (-10, 0, 19.0)]
    assert prices.current() == (), "what was is no offer"
    assert prices.save_past(()) == 0


def test_a_past_of_another_source_or_offer_touches_nothing(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    other = row(1, zone="use1-az2").id
    assert prices.save_past((*past((-10, 20.0), source="list"), *past((-10, 20.0), offer_id=other))) == 2
    assert {(change.source, change.at_s) for change in prices.history(P5)} == {
        ("aws", NOON.timestamp()),
        ("list", (NOON - 10 * HOUR).timestamp()),
    }


def test_after_a_past_it_is_still_the_newest_price_that_a_refresh_confirms(prices: SqlitePrices) -> None:
    prices.save_part(part(NOON), (believed(20.0),))
    prices.save_past(past((-30, 18.0), (-10, 19.0)))
    assert prices.save_part(part(NOON + 3 * HOUR), (believed(20.0),)) == 0
    assert told(prices) == [(-30, -10, 18.0), (-10, 0, 19.0), (0, 3, 20.0)]


def test_a_past_is_kept_whole_or_not_at_all(prices: SqlitePrices) -> None:
    good, bad = past((-30, 18.0)), past((-20, 19.0), offer_id=row(1, zone="use1-az2").id)
    torn = bad[0].model_copy(update={"currency": None})
    with pytest.raises(StoreError):
        prices.save_past((*good, torn))
    assert prices.history(OfferId("*")) == ()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-40, 4), st.sampled_from([10.0, 11.0])), max_size=8, unique_by=lambda one: one[0])
)
def test_whatever_a_past_holds_time_goes_forward_and_what_was_known_stays(
    tmp_path_factory: pytest.TempPathFactory, hours: list[tuple[int, float]]
) -> None:
    prices = SqlitePrices(tmp_path_factory.mktemp("prices") / "hexcloud.db")
    prices.save_part(part(NOON), (believed(10.0),))
    prices.save_part(part(NOON + HOUR), (believed(12.0),))
    changes = past(*sorted(hours))
    assert prices.save_past(changes) == sum(change.at_s < NOON.timestamp() for change in changes)
    assert prices.save_past(changes) == 0
    after = told(prices)
    assert [began for began, _, _ in after] == sorted(began for began, _, _ in after)
    assert all(end <= after[number + 1][0] for number, (_, end, _) in enumerate(after[:-1]))
    assert [price for _, _, price in after][-2:] == [10.0, 12.0]
    prices.close()


def test_no_answer_reads_through_the_whole_history(prices: SqlitePrices, tmp_path: Path) -> None:
    beliefs = (believed(20.0), believed(21.0, zone="use1-az2"))
    prices.save_part(part(NOON), beliefs)
    asked: list[tuple[str, Any]] = []
    engine = engine_of((tmp_path / "hexcloud.db").resolve())
    event.listen(engine, "before_cursor_execute", lambda *told: asked.append((told[2], told[3])))
    assert prices.save_part(part(NOON + HOUR), (beliefs[0], believed(30.0, zone="use1-az2"))) == 1
    with sqlite3.connect(tmp_path / "hexcloud.db") as raw:
        steps = [
            step[3]
            for text, values in asked
            if "price_changes" in text and not text.startswith("INSERT")
            for step in raw.execute(f"EXPLAIN QUERY PLAN {text}", values[0] if isinstance(values, list) else values)
        ]
    raw.close()
    assert steps and not [step for step in steps if step.startswith("SCAN") or "TEMP B-TREE" in step], steps
