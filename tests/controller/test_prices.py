import pytest

from hexcloud.controller.prices import HEADROOM, Prices, disk_usd_per_hour
from hexcloud.domain.offer import OfferId
from hexcloud.simulator.world import small_market

SPOT = OfferId("aws/us-east-1/a/8xL40S/spot")
ON_DEMAND = OfferId("aws/us-east-1/a/8xL40S/on_demand")


def test_an_offer_no_longer_listed_keeps_its_last_known_price() -> None:
    gone = OfferId("aws/us-east-1/a/gone/spot")
    assert Prices(small_market(), {gone: 7.0}).compute(gone) == 7.0
    with pytest.raises(KeyError):
        Prices(small_market(), {}).compute(gone)


def test_spot_can_cost_as_much_as_on_demand_and_no_more() -> None:
    prices = Prices(small_market(), {})
    assert prices.ceiling(SPOT) == pytest.approx(prices.compute(ON_DEMAND) + disk_usd_per_hour(SPOT))


def test_a_list_price_may_rise_by_the_headroom() -> None:
    prices = Prices(small_market(), {})
    assert prices.ceiling(ON_DEMAND) == pytest.approx(
        HEADROOM * prices.compute(ON_DEMAND) + disk_usd_per_hour(ON_DEMAND)
    )


def test_a_larger_disk_is_under_the_ceiling_too() -> None:
    prices = Prices(small_market(), {})
    more = prices.ceiling(ON_DEMAND, 5000) - prices.ceiling(ON_DEMAND)
    assert more == pytest.approx(disk_usd_per_hour(ON_DEMAND, 5000) - disk_usd_per_hour(ON_DEMAND)) and more > 0


def test_a_disk_bills_where_the_rent_does_not_include_it() -> None:
    assert disk_usd_per_hour(SPOT) == pytest.approx(256 * 0.08 / 730)
    assert disk_usd_per_hour(SPOT, 1000) == pytest.approx((1000 * 0.08 + 33) / 730), "a larger one is a fast one"
    assert disk_usd_per_hour(OfferId("gcp/us-central1/a/any/spot"), 1000) == pytest.approx(1000 * 0.10 / 730)
    assert disk_usd_per_hour(OfferId("lambda/us-west-1/-/8xA100/on_demand")) == 0.0
