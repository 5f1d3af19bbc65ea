from datetime import UTC, datetime

import pytest

from hexcloud.domain.fleet import FleetState, Node, NodeId, NodeStatus, RunId
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Tenure
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_sites_are_zones_with_a_gang(market: Market, workload: Workload, policy: Policy) -> None:
    sites = problem_of(market, workload, policy).sites
    assert [(site.anchor.region, site.anchor.zone) for site in sites] == [
        ("us-one", "a"),
        ("us-one", "b"),
        ("us-two", "a"),
    ]


def test_rate_takes_off_losses_pauses_and_drops(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    column = problem.rollout[0]
    calm, busy = problem.rate(column, 0.1), problem.rate(column, 50.0)
    assert column.samples_per_s > calm > busy > 0


def test_a_fleet_may_grow_by_what_its_quota_had_left_beside_it(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer, read = make_offer(quota="q", quota_units=96), datetime(2026, 7, 1, tzinfo=UTC)
    market = make_market(offer, quotas=(Quota(key="q", left=96, as_of=read),))
    nodes = tuple(
        Node(
            id=NodeId(f"n{number}"),
            run_id=RunId("run"),
            slot=SlotName(f"rollout-{number}"),
            attempt=0,
            role=Role.ROLLOUT,
            offer_id=offer.id,
            status=NodeStatus.READY,
            requested_at_s=0.0,
            ready_at_s=read.timestamp() - 60,
        )
        for number in range(2)
    )
    columns, _ = build_columns(market.offers, market, workload, policy)
    assert Problem(columns, market, workload, policy, FleetState(nodes=nodes)).quotas == {"q": 3 * 96}


def test_pools_that_take_turns_get_half_the_time_each(market: Market, workload: Workload, policy: Policy) -> None:
    together = problem_of(market, workload, policy)
    in_turns = Problem(together.columns, market, workload.model_copy(update={"eta": 0}), policy, FleetState())
    column = together.rollout[0]
    assert in_turns.rate(column, 1.0) == pytest.approx(together.rate(column, 1.0) / 2)


def test_faster_steps_and_longer_ways_put_columns_out_of_reach(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    column = problem.rollout[0]
    assert problem.is_young_enough(column, 1.0, 1.0)
    assert not problem.is_young_enough(column, 1.0, 1000.0)
    assert not problem.is_young_enough(column, 1e4, 1.0)


def test_a_way_longer_than_a_step_carries_every_other_version(
    market: Market, workload: Workload, policy: Policy
) -> None:
    """Step 256 s, eta 4: 650 s on the way alone would fit, but weights are 1044 s old when the next ones arrive."""
    problem = problem_of(market, workload, policy)
    quick = problem.rollout[0].model_copy(update={"generation_s": 50.0})
    assert problem.is_young_enough(quick, 250.0, 1.0)
    assert problem.is_young_enough(quick, 600.0, 1.0)
    assert not problem.is_young_enough(quick, 650.0, 1.0)


def test_the_way_home_is_free_and_short_and_the_way_elsewhere_is_not(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    ways = problem.ways(problem.sites[0])
    for offer, travel_s, usd in zip(problem.offers.values(), ways.travel_s, ways.usd_per_version, strict=True):
        assert (usd == 0) == (offer.region == "us-one")
        assert (travel_s < 1) == ((offer.region, offer.zone) == ("us-one", "a"))


def test_between_clouds_egress_costs_as_much_as_to_the_internet(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    here, beside = make_offer(), make_offer(cloud="other")
    problem = problem_of(make_market(here, beside), workload, policy)
    near = problem.egress_usd_per_hour(here, make_offer(region="us-two"), 1.0)
    far = problem.egress_usd_per_hour(here, beside, 1.0)
    assert far / near == pytest.approx(0.09 / 0.02)
    assert problem.egress_usd_per_hour(beside, here, 1.0) == 0.0


def test_reward_cores_are_what_engines_leave(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer(vcpus=20.0)), workload, policy)
    assert problem.reward_vcpus(problem.rollout[0]) == 12.0
    starved = problem_of(make_market(make_offer(vcpus=2.0)), workload, policy)
    assert starved.reward_vcpus(starved.rollout[0]) == 0.0


def test_quota_is_what_is_left(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(tenure=Tenure.SPOT), quotas=(Quota(key="q", left=40),))
    assert problem_of(market, workload, policy).quotas == {"q": 40}
