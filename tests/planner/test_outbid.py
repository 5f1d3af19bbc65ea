"""The plan that users get is never dearer than a simpler buyer's, whatever the market and the objective."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud import wiring
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import PlanResult
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.run import RunSpec
from hexcloud.domain.workload import Workload
from hexcloud.planner.baselines import baselines
from hexcloud.planner.outbid import compared
from hexcloud.planner.plan import make_plan
from tests.planner.oracle import FEWER, Makers, markets

HAIR = 1e-9


def wishes(objective: Objective, share: float, most: float) -> dict[str, object]:
    """Return an ask of an objective for a market that makes so many samples/s at most."""
    asked: dict[Objective, dict[str, object]] = {
        Objective.MIN_COST: {"target_samples_per_s": most * share},
        Objective.MAX_THROUGHPUT: {"target_samples_per_s": None, "max_usd_per_hour": 200.0 * share},
        Objective.BUDGET_RUN: {"target_samples_per_s": None, "budget_usd": 1e9, "run_samples": 1e5},
    }
    return {"objective": objective, **asked[objective]}


def check(market: Market, workload: Workload, policy: Policy, result: PlanResult) -> PlanResult:
    """The plan that comes out is within its own proof, and at its throughput nobody pays less."""
    before = result.plan.allocation
    result, rows = compared(market, workload, policy, result)
    plan = result.plan.allocation
    prices = [row.usd_per_hour for row in rows if row.usd_per_hour is not None]
    assert plan.usd_per_hour <= min([*prices, before.usd_per_hour]) * (1 + HAIR)
    assert plan.samples_per_s == before.samples_per_s
    bound = plan.proof.lower_bound_usd_per_hour
    assert bound is None or bound <= plan.usd_per_hour * (1 + HAIR)
    if policy.max_usd_per_hour is not None:
        assert plan.usd_per_hour - plan.risk_usd_per_hour <= policy.max_usd_per_hour * (1 + 1e-6)
    held = {share.column.offer_id for share in plan.rollout} | {plan.trainer.column.offer_id}
    assert {slot.offer_id for slot in result.plan.placement.slots} == held
    assert held.isdisjoint(rejection.offer_id for rejection in result.rejections)
    return result


@pytest.mark.parametrize("objective", list(Objective))
@given(data=st.data())
@FEWER
def test_over_random_markets_no_buyer_pays_less_than_the_plan(
    makers: Makers, objective: Objective, data: st.DataObject
) -> None:
    market, workload, policy = data.draw(markets(makers))
    share = data.draw(st.sampled_from([0.2, 0.5, 0.9]))
    policy = policy.model_copy(update=wishes(objective, share, 10.0))
    try:
        result = make_plan(market, workload, policy, FleetState())
    except InfeasibleError:
        return
    check(market, workload, policy, result)


@pytest.mark.parametrize("objective", list(Objective))
def test_a_cheaper_buyers_machines_are_the_plan(
    market: Market, workload: Workload, policy: Policy, objective: Objective
) -> None:
    """The plan of somebody who rents no spot stands for one that was found worse than it could be."""
    asked = policy.model_copy(update=wishes(objective, 0.5, 20.0))
    poor = make_plan(market, workload, asked.model_copy(update={"max_spot_share": 0.0}), FleetState())
    before = poor.plan.allocation
    after = check(market, workload, asked, poor).plan.allocation
    assert after.usd_per_hour < before.usd_per_hour
    rows = baselines(market, workload, asked, before)
    assert after.usd_per_hour == pytest.approx(rows[0].usd_per_hour, rel=HAIR)
    assert after.proof.upper_bound_samples_per_s == before.proof.upper_bound_samples_per_s


def test_a_start_that_does_the_same_for_less_is_the_plan(market: Market, workload: Workload, policy: Policy) -> None:
    """So `up` rents what was agreed, also where it is better than what the search finds within its gap."""
    plan = make_plan(market, workload, policy, FleetState()).plan.allocation
    again = make_plan(market, workload, policy, FleetState(), start=plan).plan.allocation
    assert again.usd_per_hour <= plan.usd_per_hour * (1 + HAIR)


def test_a_buyer_over_the_plans_cap_is_not_cheaper(market: Market, workload: Workload, policy: Policy) -> None:
    """Losses that are expected count in prices and not for the cap: who risks nothing may pay more and seem cheaper."""
    risky = policy.model_copy(update={"spot_trainer": True})
    result = make_plan(market, workload, risky, FleetState())
    plan = result.plan.allocation
    capped = risky.model_copy(update={"max_usd_per_hour": plan.usd_per_hour - plan.risk_usd_per_hour})
    dear = plan.model_copy(update={"risk_usd_per_hour": 100.0})
    worse = result.model_copy(update={"plan": result.plan.model_copy(update={"allocation": dear})})
    after, rows = compared(market, workload, capped, worse)
    cheaper = [
        row
        for row in rows
        if row.usd_per_hour is not None and row.usd_per_hour < after.plan.allocation.usd_per_hour * (1 - HAIR)
    ]
    assert cheaper == []
    assert any("for the plan's cap" in row.reason for row in rows)


def test_where_no_buyer_is_cheaper_the_plan_stays_as_it_is() -> None:
    given_ = wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k"))
    result = make_plan(given_.market, given_.workload, given_.policy, FleetState())
    assert check(given_.market, given_.workload, given_.policy, result) is result
