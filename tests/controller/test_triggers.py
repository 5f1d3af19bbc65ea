import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.controller.triggers import list_prices, price_shifts, unusable_offers
from hexcloud.domain.market import Market, Rejection
from hexcloud.simulator.world import small_market

MARKET = small_market()
OURS = MARKET.offers[0].id
OTHER = MARKET.offers[1].id


def priced(**changes: float) -> Market:
    factors = {OURS: changes.get("ours", 1.0), OTHER: changes.get("other", 1.0)}
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * factors.get(offer.id, 1.0)})
        for offer in MARKET.offers
    )
    return MARKET.model_copy(update={"offers": offers})


def in_yuan(usd_per_unit: float, factor: float = 1.0) -> Market:
    """The same market, listed in yuan at 7 for a dollar of plan time."""
    offers = tuple(
        offer.model_copy(
            update={
                "currency": "CNY",
                "usd_per_unit": usd_per_unit,
                "usd_per_hour": 7 * offer.usd_per_hour * factor * usd_per_unit,
            }
        )
        for offer in MARKET.offers
    )
    return MARKET.model_copy(update={"offers": offers})


BASELINE = list_prices(MARKET)


def moved(market: Market, unusable: frozenset[str] = frozenset()) -> set[str]:
    ours, without = frozenset({OURS}), frozenset(offer.id for offer in MARKET.offers if offer.id in unusable)
    return {shift.offer_id for shift in price_shifts(BASELINE, market, ours, without, 0.10)}


def test_our_pool_counts_in_both_directions() -> None:
    assert moved(priced(ours=1.11)) == {OURS}
    assert moved(priced(ours=0.89)) == {OURS}


def test_another_pool_counts_only_when_it_becomes_cheaper() -> None:
    assert moved(priced(other=1.5)) == set()
    assert moved(priced(other=0.8)) == {OTHER}


def test_an_offer_that_no_price_makes_useful_is_left_out() -> None:
    assert moved(priced(other=0.5), frozenset({OTHER})) == set()


def test_a_pool_that_was_not_listed_at_the_last_replan_has_no_shift() -> None:
    assert price_shifts({}, priced(ours=2.0), frozenset({OURS}), frozenset(), 0.1) == ()


@given(st.floats(0.001, 100.0))
def test_a_new_exchange_rate_is_no_price_shift(usd_per_unit: float) -> None:
    planned = list_prices(in_yuan(1 / 7))
    assert price_shifts(planned, in_yuan(usd_per_unit), frozenset({OURS}), frozenset(), 0.1) == ()


def test_a_shift_in_another_currency_is_told_in_dollars_of_now() -> None:
    planned = list_prices(in_yuan(1 / 7))
    ours = next(
        shift
        for shift in price_shifts(planned, in_yuan(0.2, factor=1.5), frozenset({OURS}), frozenset(), 0.1)
        if shift.is_ours
    )
    assert ours.after / ours.before == pytest.approx(1.5)
    assert ours.after == pytest.approx(MARKET.offers[0].usd_per_hour * 7 * 1.5 * 0.2)


def test_an_offer_that_changed_its_currency_has_no_plan_time_price() -> None:
    assert price_shifts(BASELINE, in_yuan(0.5), frozenset({OURS}), frozenset(), 0.1) == ()


@given(st.floats(0.91, 1.09), st.floats(0.91, 1.09))
def test_nothing_within_the_band_is_a_shift(ours: float, other: float) -> None:
    assert moved(priced(ours=ours, other=other)) == set()


def test_only_rules_that_price_cannot_lift_make_an_offer_unusable() -> None:
    rows = (
        Rejection(offer_id=OURS, rule="memory", reason="too small"),
        Rejection(offer_id=OTHER, rule="not_chosen", reason="too dear"),
    )
    assert unusable_offers(rows) == {OURS}
