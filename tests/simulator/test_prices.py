import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.offer import Tenure
from hexcloud.simulator.prices import PriceStep, SimMarket, spot_walk
from hexcloud.simulator.world import small_market

OFFER = small_market().offers[0]


def test_a_price_holds_from_its_moment_on() -> None:
    market = SimMarket(small_market(), (PriceStep(OFFER.id, 100.0, 7.0),))
    assert market.price(OFFER.id, 99.9) == OFFER.usd_per_hour
    assert market.price(OFFER.id, 100.0) == 7.0
    offer = market.market(200.0).offer(OFFER.id)
    assert offer is not None
    assert offer.usd_per_hour == 7.0


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(1, 50)), max_size=6), st.floats(0, 1000), st.floats(0, 1000))
def test_the_cost_of_two_spans_is_the_cost_of_both_together(
    steps: list[tuple[float, float]], one: float, other: float
) -> None:
    market = SimMarket(small_market(), (PriceStep(OFFER.id, at_s, usd) for at_s, usd in steps))
    first, last = sorted((one, other))
    split = market.usd(OFFER.id, 0.0, first) + market.usd(OFFER.id, first, last)
    assert split == pytest.approx(market.usd(OFFER.id, 0.0, last))


@given(st.integers(0, 1000))
def test_a_spot_walk_never_passes_the_on_demand_price(seed: int) -> None:
    offers = {offer.id: offer for offer in small_market().offers}
    for step in spot_walk(small_market(), random.Random(seed), 0.0, hours=12, every_s=3600):
        spot = offers[step.offer_id]
        assert spot.tenure is Tenure.SPOT
        cap = offers.get(type(spot.id)(spot.id.replace("/spot", "/on_demand")))
        assert cap is None or step.usd_per_hour <= cap.usd_per_hour
