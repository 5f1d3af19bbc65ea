from collections.abc import Callable

import pytest

from hexcloud.domain.market import LinkScope, Network
from hexcloud.domain.offer import Offer
from hexcloud.planner.distance import continent, forecast_gb_per_s, scope_between

MakeOffer = Callable[..., Offer]


@pytest.mark.parametrize(
    ("region", "where"),
    [
        ("us-east-1", "north-america"),
        ("ca-central-1", "north-america"),
        ("northamerica-northeast1", "north-america"),
        ("sa-east-1", "south-america"),
        ("eu-west-1", "europe"),
        ("europe-west4", "europe"),
        ("uk-south1", "europe"),
        ("FIN-01", "europe"),
        ("EUR-IS-1", "europe"),
        ("ap-southeast-2", "asia"),
        ("asia-east1", "asia"),
        ("australia-southeast1", "oceania"),
        ("me-west1", "middle-east"),
        ("africa-south1", "africa"),
        ("home", None),
    ],
)
def test_a_regions_name_tells_its_continent(region: str, where: str | None) -> None:
    assert continent(region) == where


@pytest.mark.parametrize(
    ("fields", "scope"),
    [
        ({}, LinkScope.ZONE),
        ({"zone": "b"}, LinkScope.REGION),
        ({"region": "us-two"}, LinkScope.CONTINENT),
        ({"cloud": "other"}, LinkScope.CONTINENT),
        ({"region": "eu-one"}, LinkScope.WORLD),
        ({"region": "mars"}, LinkScope.WORLD),
    ],
)
def test_the_scope_of_two_machines_is_the_smallest_place_that_holds_both(
    make_offer: MakeOffer, fields: dict[str, str], scope: LinkScope
) -> None:
    here, there = make_offer(), make_offer(**fields)
    assert scope_between(here, there) is scope_between(there, here) is scope


def test_a_cloud_without_zones_is_one_zone_per_region(make_offer: MakeOffer) -> None:
    assert scope_between(make_offer(zone=None), make_offer(zone=None)) is LinkScope.ZONE


def test_two_unknown_places_are_far_apart_even_when_both_are_unknown(make_offer: MakeOffer) -> None:
    assert scope_between(make_offer(region="mars"), make_offer(region="moon")) is LinkScope.WORLD


def test_a_scope_that_the_catalog_does_not_list_is_limited_by_the_machines_only(make_offer: MakeOffer) -> None:
    slow = make_offer(network_gb_per_s=2.0)
    assert forecast_gb_per_s(make_offer(), slow, Network(links=(), egress=())) == 2.0
