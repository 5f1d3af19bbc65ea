from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import ConfigError, InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.thriftiest import thriftiest
from tests.planner.oracle import FEWER, Makers, Pick, broken, cost, picks, problems

GAP = 1e-3


def most_made(problem: Problem, pick: Pick) -> float:
    """The largest throughput at which a pick keeps every rule: all get harder as it grows."""
    low, high = 0.0, pick.gang.samples_per_s
    for _ in range(40):
        pace = (low + high) / 2
        low, high = (low, pace) if broken(problem, pick, pace) else (pace, high)
    return low


def least_ratio(problem: Problem, slowest: float) -> float:
    ratios = []
    for pick in picks(problem):
        if pick.counts and not broken(problem, pick, slowest):
            made = most_made(problem, pick)
            ratios.append(cost(problem, pick, made) / made)
    return min(ratios, default=float("inf"))


@given(st.data())
@FEWER
def test_no_sample_is_cheaper_than_brute_force_finds(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    slowest = data.draw(st.sampled_from([1.0, 3.0, 6.0]))
    expected = least_ratio(problem, slowest)
    thrift = thriftiest(problem, slowest, GAP)
    if thrift is None:
        assert expected == float("inf")
        return
    reached = thrift.found.rules.choice.samples_per_s
    assert reached >= slowest * (1 - 1e-6)
    assert thrift.found.solution.objective / reached == pytest.approx(expected, rel=2 * GAP)
    assert thrift.bound <= expected * (1 + 1e-6)


def budget_run(market: Market, workload: Workload, **fields: object) -> Problem:
    policy = Policy(survival_share=0.0, objective=Objective.BUDGET_RUN).model_copy(update=fields)
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())


def test_a_deadline_is_met_and_costs_more_per_sample(market: Market, workload: Workload) -> None:
    free = solve(budget_run(market, workload, budget_usd=1e6, run_samples=100_000))
    rate = free.samples_per_s * 1.2
    hurried = solve(budget_run(market, workload, budget_usd=1e6, run_samples=3600 * rate, deadline_h=1.0))
    assert hurried.samples_per_s >= rate * (1 - 1e-6)
    assert hurried.usd_per_hour / hurried.samples_per_s >= free.usd_per_hour / free.samples_per_s * (1 - GAP)
    assert free.proof.gap <= GAP and hurried.proof.gap <= GAP


def test_a_budget_that_does_not_pay_the_samples_is_infeasible(market: Market, workload: Workload) -> None:
    free = solve(budget_run(market, workload, budget_usd=1e6, run_samples=100_000))
    needed = free.usd_per_hour / free.samples_per_s / 3600 * 100_000
    with pytest.raises(InfeasibleError, match="run_budget"):
        solve(budget_run(market, workload, budget_usd=needed * 0.9, run_samples=100_000))
    assert solve(budget_run(market, workload, budget_usd=needed * 1.1, run_samples=100_000)).usd_per_hour > 0


def test_a_budget_run_needs_to_know_its_budget_and_samples(market: Market, workload: Workload) -> None:
    with pytest.raises(ConfigError, match="run_samples"):
        solve(budget_run(market, workload, budget_usd=100.0))


def test_an_earlier_plan_is_a_start_and_no_answer(market: Market, workload: Workload) -> None:
    problem = budget_run(market, workload, budget_usd=1e6, run_samples=100_000)
    first = solve(problem)
    dearer = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * (3 if "spot" in offer.id else 1)})
        for offer in market.offers
    )
    later = replace(problem, market=market.model_copy(update={"offers": dearer}))
    fresh, warm = solve(later), solve(later, start=first)
    ratios = [plan.usd_per_hour / plan.samples_per_s for plan in (fresh, warm)]
    assert ratios[0] == pytest.approx(ratios[1], rel=2 * GAP)
