from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.appraise.gate import gate
from hexcloud.appraise.merge import merge
from hexcloud.appraise.row import Row
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.offer import Offer

MakeRow = Callable[..., Row]
MakeOffers = Callable[..., tuple[Offer, ...]]
Gpus = dict[str, GpuSpec]
AnyRow = st.SearchStrategy[Row]
fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def offers(row: MakeRow, gpus: Gpus) -> MakeOffers:
    """Turn oddities of a row into offers."""
    return lambda *odds: gate([row(**odd) for odd in odds], gpus).offers


def test_the_fresher_price_wins(offers: MakeOffers) -> None:
    (offer,) = merge(offers({"price": 40.0, "as_of": "2026-07-20"}, {"price": 98.0, "as_of": "2024-05-01"}))
    assert offer.usd_per_hour == 40.0


def test_of_two_equally_old_prices_the_dearer_is_believed(offers: MakeOffers) -> None:
    (offer,) = merge(offers({"price": 40.0}, {"price": 42.0}))
    assert offer.usd_per_hour == 42.0


def test_rows_for_zones_replace_the_row_for_their_region(offers: MakeOffers) -> None:
    merged = merge(offers({"zone": None}, {"zone": "a"}, {"zone": "b"}))
    assert [offer.zone for offer in merged] == ["a", "b"]


def test_a_region_without_zone_rows_keeps_its_row(offers: MakeOffers) -> None:
    merged = merge(offers({"zone": None}, {"zone": "a", "region": "elsewhere"}))
    assert {offer.region for offer in merged} == {"us-east-1", "elsewhere"}


def test_a_fresher_region_wide_on_demand_price_renews_the_zones(offers: MakeOffers) -> None:
    (offer,) = merge(offers({"zone": "a", "as_of": "2024-05-01"}, {"zone": None, "price": 44.0}))
    assert (offer.zone, offer.usd_per_hour, offer.as_of) == ("a", 44.0, datetime(2026, 7, 20, tzinfo=UTC))


def test_a_region_wide_spot_price_says_nothing_about_a_zone(offers: MakeOffers) -> None:
    zoned = {"zone": "a", "as_of": "2024-05-01", "tenure": "spot", "price": 14.0}
    (offer,) = merge(offers(zoned, {"zone": None, "tenure": "spot", "price": 20.0}))
    assert offer.usd_per_hour == 14.0


@fast
@given(data=st.data())
def test_merged_offers_are_unique_sorted_and_stay_so(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    merged = merge(gate(data.draw(st.lists(any_row, max_size=14)), gpus).offers)
    ids = [offer.id for offer in merged]
    assert ids == sorted(set(ids))
    assert merge(merged) == merged


@fast
@given(data=st.data())
def test_order_does_not_matter(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    believed = gate(data.draw(st.lists(any_row, max_size=10)), gpus).offers
    assert merge(data.draw(st.permutations(believed))) == merge(believed)
