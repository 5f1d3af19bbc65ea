from dataclasses import replace

import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.search import Held, cheapest, held_in
from hexcloud.planner.stretch import stretched, stretched_answer
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_a_plan_makes_at_least_what_it_was_asked_for(market: Market, workload: Workload, policy: Policy) -> None:
    found = cheapest(problem_of(market, workload, policy), 6.0, 0.0)
    assert found is not None
    longest = stretched_answer(found, 30.0, 1e-4)
    assert longest.samples_per_s >= 6.0 * (1 - 1e-6)
    assert longest.usd_per_hour >= found.solution.objective * (1 - 1e-6)


def test_machines_make_what_the_slower_pool_makes(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer("big8")), workload, policy)
    found = cheapest(problem, 5.0, 0.0)
    assert found is not None
    held = held_in(found)
    longest = stretched(problem, held, (5.0, 100.0), 1e-5)
    assert longest is not None
    made = sum(problem.rate(column, longest.samples_per_s) * count for column, count in held.rollout)
    assert longest.samples_per_s == pytest.approx(min(made, held.gang.samples_per_s), rel=1e-4)


def test_machines_that_the_market_no_longer_lists_make_nothing(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    found = cheapest(problem_of(make_market(make_offer("big8")), workload, policy), 5.0, 0.0)
    assert found is not None
    elsewhere = problem_of(make_market(make_offer("big8", region="us-two")), workload, policy)
    assert stretched(elsewhere, held_in(found), (1.0, 10.0), 1e-3) is None


def test_machines_that_never_keep_the_rules_make_nothing(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8"))
    found = cheapest(problem_of(market, workload, policy), 5.0, 0.0)
    assert found is not None
    poor = problem_of(market, workload, policy.model_copy(update={"max_usd_per_hour": 1.0}))
    assert stretched(poor, held_in(found), (1e-4, 10.0), 1e-3) is None


def test_machines_make_what_they_make_today_not_what_was_once_thought(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer("big8")), workload, policy)
    found = cheapest(problem, 5.0, 0.0)
    assert found is not None
    held = held_in(found)
    hopeful = Held(
        tuple((one.model_copy(update={"samples_per_s": 9 * one.samples_per_s}), n) for one, n in held.rollout),
        held.gang.model_copy(update={"samples_per_s": 9 * held.gang.samples_per_s}),
    )
    assert stretched(problem, hopeful, (5.0, 100.0), 1e-5) == stretched(problem, held, (5.0, 100.0), 1e-5)


def test_machines_beside_which_nobody_can_train_make_nothing(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer("big8")), workload, policy)
    found = cheapest(problem, 5.0, 0.0)
    assert found is not None
    trainerless = replace(problem, columns=problem.kinds.without_gangs())
    assert stretched(trainerless, held_in(found), (1.0, 10.0), 1e-3) is None
