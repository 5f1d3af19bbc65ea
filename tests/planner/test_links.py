from collections.abc import Callable
from itertools import combinations

from hexcloud.domain.fleet import FleetState, MeasuredLink
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import SlotName
from hexcloud.planner.links import NO_LINK_GB_PER_S, link_graph, speed

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def measured(source: str, target: str, gb_per_s: float) -> MeasuredLink:
    return MeasuredLink(source=SlotName(source), target=SlotName(target), gb_per_s=gb_per_s, latency_ms=1.0)


def test_a_link_is_forecast_by_distance_and_never_faster_than_a_machine(
    make_market: MakeMarket, make_offer: MakeOffer
) -> None:
    slow = make_offer("lean1", 1.0, network_gb_per_s=2.0)
    machines = {
        SlotName("a"): make_offer("big8"),
        SlotName("b"): make_offer("big8"),
        SlotName("c"): make_offer("big8", zone="b"),
        SlotName("d"): make_offer("big8", region="eu-one"),
        SlotName("e"): slow,
    }
    links = link_graph(machines, make_market(*machines.values()), FleetState())
    speeds = {(one, other): links.edges[one, other]["gb_per_s"] for one, other in combinations(machines, 2)}
    assert speeds[SlotName("a"), SlotName("b")] == 50.0
    assert speeds[SlotName("a"), SlotName("c")] == 3.0
    assert speeds[SlotName("a"), SlotName("d")] == 0.25
    assert speeds[SlotName("a"), SlotName("e")] == 2.0


def test_a_measured_link_wins_over_the_forecast_and_its_slower_direction_counts(
    make_market: MakeMarket, make_offer: MakeOffer
) -> None:
    machines = {SlotName("a"): make_offer("big8"), SlotName("b"): make_offer("big8")}
    fleet = FleetState(links=(measured("a", "b", 70.0), measured("b", "a", 60.0), measured("a", "gone", 1.0)))
    links = link_graph(machines, make_market(), fleet)
    assert speed(links, SlotName("a"), SlotName("b")) == 60.0


def test_machines_that_cannot_reach_each_other_have_no_edge(make_market: MakeMarket, make_offer: MakeOffer) -> None:
    machines = {SlotName(name): make_offer("big8") for name in "abc"}
    links = link_graph(machines, make_market(), FleetState(links=(measured("a", "b", 0.0),)))
    assert not links.has_edge(SlotName("a"), SlotName("b"))
    assert speed(links, SlotName("a"), SlotName("b")) == NO_LINK_GB_PER_S
    assert speed(links, SlotName("a"), SlotName("c")) == 50.0
