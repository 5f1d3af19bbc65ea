import pytest

from hexcloud.domain.fleet import FleetState, Node, NodeId, NodeStatus, RunId
from hexcloud.domain.market import Quota
from hexcloud.domain.offer import Tenure
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.milp import Status
from tests.planner.solving import MakeMarket, MakeOffer, solved


def test_rent_is_the_objective_when_nothing_else_costs(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    rules, solution = solved(make_market(make_offer(usd_per_hour=10.0)), workload, policy)
    assert rules.rent.usd_per_hour(solution) == 20.0
    assert solution.objective == pytest.approx(20.0 * (1 + 300 / 3600 / 6))


def test_running_machines_start_for_free(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer(usd_per_hour=10.0)
    nodes = tuple(
        Node(
            id=NodeId(role.value),
            run_id=RunId("run"),
            slot=SlotName(role.value),
            attempt=0,
            role=role,
            offer_id=offer.id,
            status=NodeStatus.READY,
            requested_at_s=0,
        )
        for role in Role
    )
    rules, solution = solved(make_market(offer), workload, policy, fleet=FleetState(nodes=nodes))
    assert rules.one_off.usd_per_hour(solution) == pytest.approx(0.0)


def test_stock_counts_both_roles(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    _, solution = solved(make_market(make_offer(stock=1)), workload, policy)
    assert solution.status is Status.INFEASIBLE
    _, solution = solved(make_market(offer := make_offer(stock=2)), workload, policy)
    assert f"stock[{offer.id}]" in solution.binding


def test_quota_counts_units_of_both_roles(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer(quota="q", quota_units=96)
    _, solution = solved(make_market(offer, quotas=(Quota(key="q", left=191),)), workload, policy)
    assert solution.status is Status.INFEASIBLE
    _, solution = solved(make_market(offer, quotas=(Quota(key="q", left=192),)), workload, policy)
    assert "quota[q]" in solution.binding


def test_a_quota_over_all_regions_counts_the_gpus_of_every_region(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """A trainer and a rollout machine of eight GPUs each, wherever they stand."""
    offers = [make_offer(region=region, quota=region, quota_units=8, quota_global="all") for region in ("one", "two")]
    regional = [Quota(key=region, left=64) for region in ("one", "two")]
    _, solution = solved(make_market(*offers, quotas=(*regional, Quota(key="all", left=15))), workload, policy)
    assert solution.status is Status.INFEASIBLE
    _, solution = solved(make_market(*offers, quotas=(*regional, Quota(key="all", left=16))), workload, policy)
    assert "quota[all]" in solution.binding


def test_spot_share_keeps_part_of_rollout_on_demand(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(), make_offer(usd_per_hour=1.0, tenure=Tenure.SPOT))
    half = policy.model_copy(update={"max_spot_share": 0.5})
    rules, solution = solved(market, workload, half)
    counts = {rules.offer(used).tenure: solution.count(machines) for used, machines in rules.rollout}
    assert counts[Tenure.ON_DEMAND] >= counts[Tenure.SPOT]


def test_survival_needs_a_second_domain(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    careful = policy.model_copy(update={"survival_share": 0.5})
    assert solved(make_market(make_offer()), workload, careful)[1].status is Status.INFEASIBLE
    market = make_market(make_offer(), make_offer(tenure=Tenure.SPOT, region="us-two"))
    rules, solution = solved(market, workload, careful)
    assert all(solution.count(machines) > 0 for _, machines in rules.rollout)


def test_rewards_may_need_more_machines_than_tokens(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    heavy = workload.model_copy(update={"reward_cpu_s_per_sample": 4.0})
    rules, solution = solved(make_market(make_offer(vcpus=16.0)), heavy, policy)
    assert solution.count(rules.rollout[0][1]) == 3


def test_budget_caps_rent_egress_and_starts(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(usd_per_hour=10.0))
    assert solved(market, workload, policy.model_copy(update={"max_usd_per_hour": 20.1}))[1].values == ()
    assert solved(market, workload, policy.model_copy(update={"max_usd_per_hour": 20.5}))[1].values != ()
