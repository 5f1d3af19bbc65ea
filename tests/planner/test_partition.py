from collections.abc import Callable
from itertools import combinations, pairwise, permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState, MeasuredLink
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import (
    Allocation,
    Layout,
    Placement,
    Proof,
    Role,
    RolloutColumn,
    RolloutShare,
    Slot,
    SlotName,
    TrainerColumn,
    TrainerShare,
)
from hexcloud.domain.workload import Workload
from hexcloud.planner.partition import Links, bisect, eq3_score, flops_window, link_graph, partition, rank_order
from hexcloud.planner.place import place

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def allocation(trainer: Offer, nodes: int, *rollouts: tuple[Offer, int]) -> Allocation:
    shares = tuple(
        RolloutShare(
            column=RolloutColumn(offer_id=offer.id, tp=1, replicas=8, batch=16, samples_per_s=2.0, generation_s=60.0),
            count=count,
            usd_per_hour=count * offer.usd_per_hour,
        )
        for offer, count in rollouts
    )
    gang = TrainerColumn(
        offer_id=trainer.id, nodes=nodes, layout=Layout(ranks=8 * nodes), samples_per_s=20.0, step_s=12.8
    )
    return Allocation(
        rollout=shares,
        trainer=TrainerShare(column=gang, usd_per_hour=nodes * trainer.usd_per_hour),
        samples_per_s=4.0,
        rent_usd_per_hour=30.0,
        egress_usd_per_hour=1.5,
        one_off_usd_per_hour=7.0,
        proof=Proof(lower_bound_usd_per_hour=1.0, gap=0.0),
    )


def measured(source: str, target: str, gb_per_s: float) -> MeasuredLink:
    return MeasuredLink(source=SlotName(source), target=SlotName(target), gb_per_s=gb_per_s, latency_ms=1.0)


@pytest.fixture
def near(make_offer: MakeOffer) -> Offer:
    return make_offer("big8", 24.0)


@pytest.fixture
def far(make_offer: MakeOffer) -> Offer:
    return make_offer("lean8", 5.0, region="us-two")


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
    assert links.edges[SlotName("a"), SlotName("b")]["gb_per_s"] == 60.0


def test_without_measurements_the_gang_keeps_the_order_of_its_placement(
    make_market: MakeMarket, workload: Workload, near: Offer
) -> None:
    market = make_market(near)
    wanted = allocation(near, 4, (near, 1))
    plan = partition(place(wanted, FleetState(), market), wanted, market, workload, FleetState())
    assert plan.ranks == ("trainer-0", "trainer-1", "trainer-2", "trainer-3")


def test_the_ring_avoids_a_slow_link_and_the_head_stays(
    make_market: MakeMarket, workload: Workload, near: Offer
) -> None:
    market = make_market(near)
    wanted = allocation(near, 4, (near, 1))
    slow = FleetState(links=(measured("trainer-0", "trainer-1", 1.0), measured("trainer-2", "trainer-3", 1.0)))
    plan = partition(place(wanted, FleetState(), market), wanted, market, workload, slow)
    ring = [*plan.ranks, plan.ranks[0]]
    hops = {frozenset(hop) for hop in pairwise(ring)}
    assert plan.ranks[0] == "trainer-0"
    assert frozenset({"trainer-0", "trainer-1"}) not in hops
    assert frozenset({"trainer-2", "trainer-3"}) not in hops
    assert {slot.name: slot.rank for slot in plan.placement.role(Role.TRAINER)} == {
        name: rank for rank, name in enumerate(plan.ranks)
    }


def gang(links: Links) -> Placement:
    column = TrainerColumn(
        offer_id="acme/r/a/big/on_demand",
        nodes=len(links),
        layout=Layout(ranks=len(links)),
        samples_per_s=1.0,
        step_s=1.0,
    )
    slots = tuple(
        Slot(name=name, role=Role.TRAINER, offer_id=column.offer_id, rank=rank, usd_per_hour=1.0, trainer=column)
        for rank, name in enumerate(sorted(links))
    )
    return Placement(slots=slots)


def complete(speeds: list[float], count: int) -> Links:
    links: Links = nx.complete_graph([SlotName(f"n{index:02}") for index in range(count)])
    for (one, other), speed in zip(links.edges, speeds, strict=False):
        links.edges[one, other]["gb_per_s"] = speed
    return links


def slowest_hop(links: Links, ring: tuple[SlotName, ...]) -> float:
    hops = zip(ring, (*ring[1:], ring[0]), strict=True)
    return min(float(links.edges[one, other]["gb_per_s"]) for one, other in hops)


@given(
    st.integers(2, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.floats(0.1, 100), min_size=10, max_size=10)))
)
def test_the_ring_of_a_small_gang_is_the_best_of_all(case: tuple[int, list[float]]) -> None:
    count, speeds = case
    links = complete(speeds, count)
    best = max(slowest_hop(links, ring) for ring in permutations(sorted(links)))
    assert slowest_hop(links, rank_order(links, gang(links))) == best


@given(st.lists(st.floats(0.1, 100), min_size=66, max_size=66))
@settings(max_examples=20)
def test_the_ring_of_a_large_gang_is_no_worse_than_the_order_it_had(speeds: list[float]) -> None:
    links = complete(speeds, 12)
    ring = rank_order(links, gang(links))
    assert sorted(ring) == sorted(links)
    assert slowest_hop(links, ring) >= slowest_hop(links, tuple(sorted(links)))


def test_one_copy_of_the_weights_crosses_to_a_region(
    make_market: MakeMarket, workload: Workload, near: Offer, far: Offer
) -> None:
    market = make_market(near, far)
    wanted = allocation(near, 1, (near, 2), (far, 3))
    fleet = FleetState(links=(measured("trainer-0", "rollout-4", 0.9),))
    plan = partition(place(wanted, FleetState(), market), wanted, market, workload, fleet)
    routes = {route.target: route for route in plan.routes}
    assert routes.keys() == {slot.name for slot in plan.placement.role(Role.ROLLOUT)}
    assert [route.target for route in plan.routes if route.crosses_region] == ["rollout-4"]
    assert {routes[SlotName(name)].source for name in ("rollout-1", "rollout-2", "rollout-4")} == {"trainer-0"}
    assert {routes[SlotName(name)].source for name in ("rollout-3", "rollout-5")} == {"rollout-4"}
    assert routes[SlotName("rollout-4")].gb_per_s == 0.9


def test_the_forecast_speaks_in_the_words_of_the_user(
    make_market: MakeMarket, workload: Workload, near: Offer, far: Offer
) -> None:
    market = make_market(near, far)
    wanted = allocation(near, 1, (far, 1))
    forecast = partition(place(wanted, FleetState(), market), wanted, market, workload, FleetState()).forecast
    assert forecast.tokens_per_s == pytest.approx(4.0 * 2048)
    assert forecast.usd_per_hour == pytest.approx(31.5)
    assert forecast.step_s == pytest.approx(64.0)


def coloured(case: tuple[int, list[float], list[tuple[float, float]]]) -> Links:
    count, speeds, machines = case
    links = complete(speeds, count)
    for name, (flops, hbm) in zip(sorted(links), machines, strict=False):
        links.nodes[name].update(flops=flops, hbm_gb_per_s=hbm)
    return links


graphs = (
    st.integers(2, 9)
    .flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.floats(0.1, 100), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2),
            st.lists(st.tuples(st.floats(100, 2000), st.floats(300, 8000)), min_size=n, max_size=n),
        )
    )
    .map(coloured)
)


@given(graphs, st.floats(0.1, 0.9))
@settings(max_examples=100, deadline=None)
def test_a_cut_scores_at_least_95_percent_of_the_best_of_all_cuts(links: Links, share: float) -> None:
    low, high = flops_window(links, share)
    flops = {name: float(machine["flops"]) for name, machine in links.nodes(data=True)}
    total = sum(flops.values())
    sides = (
        frozenset(side)
        for size in range(1, len(links) + 1)
        for side in combinations(sorted(links), size)
        if low <= sum(flops[name] for name in side) / total <= high
    )
    best = max((eq3_score(links, side) for side in sides), default=0.0)
    found = bisect(links, share)
    assert eq3_score(links, found) >= 0.95 * best
    assert low - 1e-9 <= sum(flops[name] for name in found) / total <= high + 1e-9


def test_all_flops_go_to_training_when_gamma_is_one() -> None:
    links = coloured((4, [1.0] * 6, [(1.0, 1.0)] * 4))
    assert bisect(links, 1.0) == frozenset(links)


def test_eq3_counts_links_kept_for_training_and_bandwidth_left_for_rollout() -> None:
    links = coloured((3, [8.0, 1.0, 1.0], [(10.0, 1.0), (10.0, 1.0), (1.0, 8.0)]))
    assert eq3_score(links, frozenset({SlotName("n00"), SlotName("n01")})) == pytest.approx(8 / 10 + 8 / 10)
