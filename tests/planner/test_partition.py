from collections.abc import Callable
from itertools import pairwise

import pytest

from hexcloud.domain.fleet import FleetState, MeasuredLink, Node, NodeId, NodeStatus, RunId
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import (
    Allocation,
    Layout,
    Proof,
    Role,
    RolloutColumn,
    RolloutShare,
    SlotName,
    TrainerColumn,
    TrainerShare,
)
from hexcloud.domain.workload import Workload
from hexcloud.planner.partition import partition
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


def trainer(slot: str, offer: Offer, status: NodeStatus = NodeStatus.READY) -> Node:
    return Node(
        id=NodeId(f"r.{slot}.1"),
        run_id=RunId("r"),
        slot=SlotName(slot),
        attempt=1,
        role=Role.TRAINER,
        offer_id=offer.id,
        status=status,
        requested_at_s=0.0,
        ready_at_s=float(slot[-1]),
    )


def test_a_gang_that_shrinks_keeps_the_machines_with_the_best_links(
    make_market: MakeMarket, workload: Workload, near: Offer
) -> None:
    market = make_market(near)
    wanted = allocation(near, 2, (near, 1))
    nodes = tuple(trainer(f"trainer-{number}", near) for number in range(3))
    slow = (measured("trainer-0", "trainer-1", 1.0), measured("trainer-1", "trainer-2", 1.0))
    fleet = FleetState(nodes=nodes, links=slow, next_slot=3)
    placement = place(wanted, fleet, market)
    assert [slot.name for slot in placement.role(Role.TRAINER)] == ["trainer-0", "trainer-1"]
    plan = partition(placement, wanted, market, workload, fleet)
    assert plan.ranks == ("trainer-0", "trainer-2")
    assert [slot.name for slot in plan.placement.role(Role.TRAINER)] == ["trainer-0", "trainer-2"]
    again = partition(plan.placement, wanted, market, workload, fleet)
    assert again == plan, "what is chosen stays chosen"


def test_a_trainer_that_leaves_is_no_spare(make_market: MakeMarket, workload: Workload, near: Offer) -> None:
    market = make_market(near)
    wanted = allocation(near, 2, (near, 1))
    nodes = (
        trainer("trainer-0", near),
        trainer("trainer-1", near),
        trainer("trainer-2", near, NodeStatus.DRAINING),
    )
    fleet = FleetState(nodes=nodes, links=(measured("trainer-0", "trainer-1", 1.0),), next_slot=3)
    assert partition(place(wanted, fleet, market), wanted, market, workload, fleet).ranks == ("trainer-0", "trainer-1")
