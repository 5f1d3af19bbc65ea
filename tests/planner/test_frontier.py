from itertools import pairwise

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.baselines import DEAREST, SKYPILOT
from hexcloud.planner.frontier import PLAN, SHARES, Fleet, FrontierStep, frontier
from hexcloud.planner.plan import make_plan


@pytest.fixture
def plan(market: Market, workload: Workload, policy: Policy) -> Allocation:
    return make_plan(market, workload, policy, FleetState()).plan.allocation


@pytest.fixture
def steps(market: Market, workload: Workload, policy: Policy, plan: Allocation) -> list[FrontierStep]:
    return list(frontier(market, workload, policy, plan))


def test_more_throughput_never_costs_less(steps: list[FrontierStep]) -> None:
    prices = [step.usd_per_hour[PLAN] for step in steps if PLAN in step.usd_per_hour]
    assert len(prices) >= 4
    assert all(less <= more * (1 + MIP_GAP) for less, more in pairwise(prices))


def test_the_plan_is_one_of_its_points(steps: list[FrontierStep], plan: Allocation) -> None:
    (here,) = [step for step in steps if step.samples_per_s == plan.samples_per_s]
    assert here.usd_per_hour[PLAN] == plan.usd_per_hour
    assert [step.samples_per_s for step in steps] == [plan.samples_per_s * share for share in SHARES]


def test_no_buyer_is_under_the_plan_or_far_over_it(steps: list[FrontierStep]) -> None:
    assert any(len(step.usd_per_hour) > 2 for step in steps)
    for step in steps:
        for price in step.usd_per_hour.values():
            assert step.usd_per_hour[PLAN] * (1 - MIP_GAP) <= price <= DEAREST * step.usd_per_hour[PLAN] * (1 + MIP_GAP)


def test_what_cannot_be_had_is_missing(market: Market, workload: Workload, policy: Policy, plan: Allocation) -> None:
    boast = plan.model_copy(update={"samples_per_s": 1e7})
    told = {step.samples_per_s: step.usd_per_hour for step in frontier(market, workload, policy, boast)}
    assert told.pop(1e7) == {PLAN: plan.usd_per_hour}, "the plan is what it is"
    assert all(prices == {} for prices in told.values())


def test_a_cap_and_the_other_objective_do_not_bend_the_picture(
    market: Market, workload: Workload, policy: Policy, plan: Allocation, steps: list[FrontierStep]
) -> None:
    fastest = policy.model_copy(update={"objective": Objective.MAX_THROUGHPUT, "max_usd_per_hour": 1.0})
    assert list(frontier(market, workload, fastest, plan)) == steps


def test_another_optimizers_places_are_priced_for_the_machines_of_each_step(
    market: Market, workload: Workload, policy: Policy, plan: Allocation
) -> None:
    asked: list[Fleet] = []

    def same_offers(fleets: tuple[Fleet, ...]) -> tuple[frozenset[OfferId], ...]:
        asked.extend(fleets)
        return tuple(frozenset(fleet) for fleet in fleets)

    steps = list(frontier(market, workload, policy, plan, same_offers))
    assert len(asked) == len(SHARES)
    assert asked[SHARES.index(1.0)][plan.trainer.column.offer_id] >= plan.trainer.column.nodes
    for step in steps:
        if PLAN in step.usd_per_hour:
            assert step.usd_per_hour[SKYPILOT] == pytest.approx(step.usd_per_hour[PLAN], rel=2 * MIP_GAP)
