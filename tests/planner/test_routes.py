from collections import Counter
from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState, MeasuredLink
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import SlotName, WeightRoute
from hexcloud.planner.forecast import weight_sync_s
from hexcloud.planner.links import link_graph
from hexcloud.planner.routes import weight_routes

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]
HEAD = SlotName("trainer-0")


@pytest.fixture
def route(make_market: MakeMarket) -> Callable[..., tuple[WeightRoute, ...]]:
    """Route weights from a head to slots that stand where their offers are."""

    def make(head: Offer, *rollout: Offer, fleet: FleetState | None = None) -> tuple[WeightRoute, ...]:
        machines = slots(head, *rollout)
        links = link_graph(machines, make_market(), fleet or FleetState())
        return weight_routes(links, HEAD, tuple(name for name in machines if name != HEAD), machines)

    return make


def slots(head: Offer, *rollout: Offer) -> dict[SlotName, Offer]:
    return {HEAD: head} | {SlotName(f"rollout-{index:02}"): offer for index, offer in enumerate(rollout)}


Route = Callable[..., tuple[WeightRoute, ...]]


def test_every_slot_has_one_route_and_all_begin_at_the_head(route: Route, make_offer: MakeOffer) -> None:
    places = [{"region": region, "zone": zone} for region in ("us-one", "us-two", "eu-one") for zone in "ab"]
    routes = route(make_offer("big8"), *(make_offer("lean1", 1.0, **place) for place in places for _ in range(5)))
    source_of = {one.target: one.source for one in routes}
    assert len(source_of) == len(routes) == 30
    for target in source_of:
        way = [target]
        while way[-1] != HEAD:
            way.append(source_of[way[-1]])
            assert len(way) <= 30, "routes go in a circle"


def test_one_copy_enters_a_region_and_one_each_further_zone(route: Route, make_offer: MakeOffer) -> None:
    zones = ["a", "a", "a", "b", "b", "c"]
    machines = [make_offer("lean1", 1.0, region="us-two", zone=zone) for zone in zones]
    routes = route(make_offer("big8"), *machines)
    where = slots(make_offer("big8"), *machines)
    crossing = Counter((where[one.source].zone, where[one.target].zone) for one in routes if not one.crosses_region)
    assert sum(one.crosses_region for one in routes) == 1
    assert sum(count for (here, there), count in crossing.items() if here != there) == 2


def test_at_home_the_head_feeds_its_zone_and_one_slot_of_each_other(route: Route, make_offer: MakeOffer) -> None:
    routes = route(make_offer("big8"), *(make_offer("lean1", 1.0, zone=zone) for zone in "aabbb"))
    assert not any(one.crosses_region for one in routes)
    assert [one.target for one in routes if one.source == HEAD] == ["rollout-00", "rollout-01", "rollout-02"]


@pytest.mark.parametrize("count", [3, 4, 5, 10, 40])
def test_many_machines_have_their_copy_sooner_than_from_one_source(
    route: Route, make_offer: MakeOffer, count: int
) -> None:
    head, rollout = make_offer("big8"), [make_offer("lean1", 1.0, network_gb_per_s=50.0)] * count
    routes, machines = route(head, *rollout), slots(head, *rollout)
    star = tuple(one.model_copy(update={"source": HEAD}) for one in routes)
    ours_s, star_s = (weight_sync_s(way, machines, 1e9) for way in (routes, star))
    assert ours_s < star_s if count > 4 else ours_s == star_s


def test_the_measured_entry_of_a_region_wins(route: Route, make_offer: MakeOffer) -> None:
    link = MeasuredLink(source=HEAD, target=SlotName("rollout-02"), gb_per_s=0.9, latency_ms=1.0)
    far = [make_offer("lean1", 1.0, region="us-two")] * 4
    routes = route(make_offer("big8"), *far, fleet=FleetState(links=(link,)))
    assert [(one.target, one.gb_per_s) for one in routes if one.crosses_region] == [("rollout-02", 0.9)]
