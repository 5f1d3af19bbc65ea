from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.merge import evidence, merge
from hexcloud.domain.offer import Offer
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]
MakeOffers = Callable[..., tuple[Offer, ...]]
AnyRow = st.SearchStrategy[Row]
fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def offers(row: MakeRow, known: Known) -> MakeOffers:
    """Turn oddities of a row into offers."""
    return lambda *odds: offers_of(gate([row(**odd) for odd in odds], known))


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


def test_a_renewed_price_brings_its_currency(offers: MakeOffers) -> None:
    (offer,) = merge(offers({"as_of": "2024-05-01"}, {"zone": None, "price": 300.0, "currency": "CNY"}))
    assert (offer.zone, offer.currency) == ("a", "CNY")
    assert offer.list_price == pytest.approx(300.0)


def test_a_region_wide_spot_price_says_nothing_about_a_zone(offers: MakeOffers) -> None:
    zoned = {"zone": "a", "as_of": "2024-05-01", "tenure": "spot", "price": 14.0}
    (offer,) = merge(offers(zoned, {"zone": None, "tenure": "spot", "price": 20.0}))
    assert offer.usd_per_hour == 14.0


def reasons(offers: tuple[Offer, ...]) -> list[tuple[float, str]]:
    (winner,) = merge(offers)
    return [(lost.offer.usd_per_hour, lost.reason) for lost in evidence(offers).get(winner.id, ())]


def test_what_lost_is_kept_with_why_it_did(offers: MakeOffers) -> None:
    old, cheap = {"price": 98.0, "as_of": "2024-05-01", "source": "old"}, {"price": 38.0, "source": "shop"}
    assert reasons(offers({"price": 40.0}, old, cheap)) == [
        (38.0, "as old as what list says, and cheaper: the dearer of two is believed"),
        (98.0, "older than what list says (2026-07-20 00:00)"),
    ]


def test_a_region_wide_row_is_evidence_for_each_of_its_zones(offers: MakeOffers) -> None:
    both = offers({"zone": None, "price": 39.0, "source": "wide"}, {"zone": "a"}, {"zone": "b"})
    found = evidence(both)
    assert sorted(found) == [offer.id for offer in merge(both)]
    for lost in found.values():
        assert [one.reason for one in lost] == ["speaks for the whole region; list lists the zone"]


def test_a_zones_own_older_price_is_evidence_beside_the_one_that_renewed_it(offers: MakeOffers) -> None:
    both = offers({"as_of": "2024-05-01"}, {"zone": None, "price": 44.0, "source": "wide"})
    assert reasons(both) == [(40.0, "older than what wide says (2026-07-20 00:00)")]


def test_who_says_the_same_is_evidence_too_and_a_lone_row_has_none(offers: MakeOffers) -> None:
    assert reasons(offers({"source": "tracker"}, {})) == [(40.0, "says the same as tracker")]
    assert reasons(offers({})) == []


@fast
@given(data=st.data())
def test_merged_offers_are_unique_sorted_and_stay_so(any_row: AnyRow, known: Known, data: st.DataObject) -> None:
    merged = merge(offers_of(gate(data.draw(st.lists(any_row, max_size=14)), known)))
    ids = [offer.id for offer in merged]
    assert ids == sorted(set(ids))
    assert merge(merged) == merged


@fast
@given(data=st.data())
def test_order_does_not_matter(any_row: AnyRow, known: Known, data: st.DataObject) -> None:
    believed = offers_of(gate(data.draw(st.lists(any_row, max_size=10)), known))
    shuffled = data.draw(st.permutations(believed))
    assert merge(shuffled) == merge(believed)
    assert evidence(shuffled) == evidence(believed)


@fast
@given(data=st.data())
def test_nothing_that_was_believed_is_forgotten(any_row: AnyRow, known: Known, data: st.DataObject) -> None:
    believed = offers_of(gate(data.draw(st.lists(any_row, max_size=10)), known))
    lost = [lost.offer for losers in evidence(believed).values() for lost in losers]
    prices = {(offer.source, offer.as_of, offer.usd_per_hour) for offer in [*lost, *merge(believed)]}
    assert prices == {(offer.source, offer.as_of, offer.usd_per_hour) for offer in believed}


def test_a_merged_market_has_no_evidence_left(offers: MakeOffers) -> None:
    assert evidence(merge(offers({}, {"price": 42.0}, {"zone": None, "as_of": "2024-05-01"}))) == {}
