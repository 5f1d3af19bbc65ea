from bisect import bisect_right

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.appraise.history import Events, History, Quote, Standing, history_of
from hexcloud.domain.offer import OfferId

A, B, C = (OfferId(f"aws/us-east-1/use1-az{n}/p5.48xlarge/spot") for n in (1, 2, 3))


def history(*events: tuple[OfferId, float, float, Standing]) -> History:
    ids = (C, A, B)  # as a file may have them: unsorted
    columns = list(zip(*events, strict=True)) or [(), (), (), ()]
    series = np.array([ids.index(offer_id) for offer_id in columns[0]], dtype=np.int64)
    at_s, price = (np.array(column, dtype=np.float64) for column in columns[1:3])
    return history_of((Events(ids, series, at_s, price, np.array(columns[3], dtype=np.int8)),))


def test_a_price_holds_from_its_event_to_the_next() -> None:
    told = history((A, 20, 3.0, Standing.PRICED), (A, 10, 2.0, Standing.PRICED), (B, 15, 9.0, Standing.PRICED))
    assert told.price_at(A, 9.99) is None
    assert told.price_at(A, 10) == told.price_at(A, 19.99) == Quote(2.0, 10.0)
    assert told.price_at(A, 1e9) == Quote(3.0, 20.0)
    assert told.at(15) == {A: Quote(2.0, 10.0), B: Quote(9.0, 15.0)}
    assert (told.first_s, told.last_s) == (10.0, 20.0)


def test_an_offer_without_a_price_is_not_for_sale_and_says_since_when() -> None:
    told = history((A, 1, 2.0, Standing.PRICED), (A, 2, np.nan, Standing.UNPRICED), (B, 3, np.nan, Standing.GONE))
    assert told.price_at(A, 5) == Quote(None, 2.0)
    assert told.price_at(B, 5) == Quote(None, 3.0)
    assert told.price_at(C, 5) is None
    assert told.price_at(OfferId("zzz"), 5) is None


def test_the_last_price_is_remembered_when_it_is_not_for_sale_any_more() -> None:
    told = history((A, 1, 2.0, Standing.PRICED), (A, 2, np.nan, Standing.UNPRICED), (B, 3, np.nan, Standing.GONE))
    assert [told.last_price(A, at_s) for at_s in (0, 1, 9)] == [None, Quote(2.0, 1.0), Quote(2.0, 1.0)]
    assert told.last_price(B, 9) is None
    assert told.last_price(C, 9) is None


def test_of_two_events_at_one_moment_the_later_line_counts() -> None:
    assert history((A, 1, 2.0, Standing.PRICED), (A, 1, 3.0, Standing.PRICED)).price_at(A, 1) == Quote(3.0, 1.0)


def test_an_empty_history_has_no_price() -> None:
    told = history()
    assert told.at(0) == {}
    assert history_of(()).price_at(A, 0) is None


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 30), st.floats(0.1, 9.0)), max_size=40),
    st.integers(-1, 31),
)
def test_the_price_of_all_at_once_is_the_price_of_each(events: list[tuple[OfferId, int, float]], moment: int) -> None:
    told = history(*((offer_id, at, price, Standing.PRICED) for offer_id, at, price in events))
    for offer_id in (A, B, C):
        mine = sorted(((at, place, price) for place, (o, at, price) in enumerate(events) if o == offer_id))
        past = bisect_right(mine, moment, key=lambda event: event[0])
        expected = mine[past - 1][2] if past else None
        quote = told.price_at(offer_id, moment)
        assert (quote and quote.usd_per_hour) == expected
        assert told.at(moment).get(offer_id) == quote
