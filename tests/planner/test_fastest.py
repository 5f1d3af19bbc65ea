from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner import search
from hexcloud.planner.columns import build_columns
from hexcloud.planner.fastest import fastest, first_ceiling
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest, held_in
from tests.planner.oracle import FEWER, Makers, problems


def problem_of(market: Market, workload: Workload, policy: Policy, cap: float | None = 40.0) -> Problem:
    capped = policy.model_copy(update={"target_samples_per_s": None, "max_usd_per_hour": cap})
    columns, _ = build_columns(market.offers, market, workload, capped)
    return Problem(columns, market, workload, capped, FleetState())


def test_nothing_is_found_beyond_the_fastest(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    found, ceiling = fastest(problem, 1e-3)
    assert found is not None
    assert found.rules.choice.samples_per_s <= ceiling <= found.rules.choice.samples_per_s * 1.002
    assert cheapest(problem, ceiling * 1.01, 1e-3) is None
    assert ceiling <= first_ceiling(problem) * (1 + 1e-9)


def test_more_money_buys_no_less_throughput(market: Market, workload: Workload, policy: Policy) -> None:
    made = []
    for cap in (20.0, 40.0, 80.0, None):
        found, _ = fastest(problem_of(market, workload, policy, cap), 1e-3)
        assert found is not None
        made.append(found.rules.choice.samples_per_s)
    assert all(more >= less * (1 - 2e-3) for less, more in pairwise(made))


def test_what_was_the_fastest_is_where_the_next_search_starts(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    first, ceiling = fastest(problem, 1e-3)
    assert first is not None
    again, as_before = fastest(problem, 1e-3, start=held_in(first))
    assert again is not None
    assert abs(as_before - ceiling) <= 2e-3 * ceiling


@given(st.data())
@FEWER
def test_a_start_that_can_no_longer_be_had_changes_nothing(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers, Objective.MAX_THROUGHPUT))
    first, _ = fastest(problem, 1e-3)
    if first is None:
        return
    offers = tuple(
        offer.model_copy(update={"stock": data.draw(st.sampled_from([0, 1, offer.stock]))})
        for offer in problem.market.offers
    )
    later = replace(problem, market=problem.market.model_copy(update={"offers": offers}))
    fresh, warm = fastest(later, 1e-3), fastest(later, 1e-3, start=held_in(first))
    assert (fresh[0] is None) == (warm[0] is None)
    assert warm[1] == pytest.approx(fresh[1], rel=2e-3)


def test_nothing_is_fast_enough_where_nothing_is_cheap_enough(
    market: Market, workload: Workload, policy: Policy
) -> None:
    assert fastest(problem_of(market, workload, policy, 0.5), 1e-3)[0] is None


def test_where_the_solver_gives_up_the_plan_stands_under_a_ceiling_that_is_proven(
    market: Market, workload: Workload, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(market, workload, policy)
    proven, ceiling = fastest(problem, 1e-3)
    monkeypatch.setattr(search, "NODE_LIMIT", 0)
    found, above = fastest(problem, 1e-3)
    assert proven is not None
    assert above >= ceiling * (1 - 1e-9)
    if found is not None:
        assert found.rules.choice.samples_per_s <= ceiling * (1 + 1e-9)
