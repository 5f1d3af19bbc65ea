"""Plans of at most two offers: the bound on pairs against brute force, and what it is worth on a market."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.files import find_model
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.gangs import Ranked
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.pairs import cheapest_first, is_narrow, pairs_at
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.trial import trial_at
from hexcloud.planner.useful import Useful
from tests.planner.oracle import EXAMPLES, FEWER, Makers, Pick, broken, brute_force, cost, picks, problems

PACE = 3.0
NOW_S = 1_785_500_000.0
"""2026-07-31, after the last price of the bundle."""


def narrow_problem(makers: Makers, data: st.DataObject) -> Problem:
    drawn = data.draw(problems(makers))
    limits = {
        "max_pools": data.draw(st.sampled_from([1, 2, 2, 2])),
        "survival_share": data.draw(st.sampled_from([0.0, 0.3, 0.6])),
        "max_usd_per_hour": None,
    }
    slack = data.draw(st.sampled_from([{}, {}, {"survive[acme/us-one/a/BIG]": 0.5}]))
    return replace(drawn, policy=drawn.policy.model_copy(update=limits), slack=slack)


def names_of(pick: Pick) -> set[OfferId]:
    return {pick.gang.offer_id} | {column.offer_id for column, _ in pick.counts}


@given(st.data())
@EXAMPLES
def test_no_plan_of_few_offers_costs_less_or_holds_another_one(makers: Makers, data: st.DataObject) -> None:
    drawn = narrow_problem(makers, data)
    asked = data.draw(st.sampled_from([None, *drawn.offers]))
    problem = replace(drawn, require=frozenset() if asked is None else frozenset([asked]))
    target = problem.policy.target_samples_per_s
    assert target is not None and is_narrow(problem)
    useful = Useful(problem, target, is_eased=True)
    allowed = [pick for pick in picks(problem) if not broken(problem, pick, target)]
    kept = [pick for pick in allowed if asked is None or asked in names_of(pick)]
    sites = {site.number: site for site in problem.sites}
    for pick in kept:
        number = int(problem.gang_table.site[problem.offer_numbers[pick.gang.offer_id]])
        able = problem.gang_table.between(target, target, number)
        ranked = Ranked(float(able.usd_per_hour.min()), sites[number], able)
        price = cost(problem, pick, target)
        pairs = pairs_at(useful, ranked, price + 1e-6)
        assert pairs.usd_per_hour <= price + 1e-9
        assert all(pairs.offers[problem.offer_numbers[column.offer_id]] for column, _ in pick.counts)
        assert problem.offer_numbers[pick.gang.offer_id] in able.offer[pairs.gangs]


@given(st.data())
@EXAMPLES
def test_the_cheapest_plan_of_few_offers_is_that_of_brute_force(makers: Makers, data: st.DataObject) -> None:
    problem = replace(narrow_problem(makers, data), slack={})
    target = problem.policy.target_samples_per_s
    assert target is not None
    expected = brute_force(problem, target)
    if expected is None:
        return
    found = solve(problem, gap=0.0)
    assert found.usd_per_hour == pytest.approx(expected, rel=1e-6)
    assert found.proof.lower_bound_usd_per_hour == pytest.approx(expected, rel=1e-6)


@given(st.data())
@FEWER
def test_the_cheapest_samples_of_few_offers_are_those_of_every_column(makers: Makers, data: st.DataObject) -> None:
    drawn = replace(narrow_problem(makers, data), slack={})
    wishes = {"objective": Objective.BUDGET_RUN, "budget_usd": 1e9, "run_samples": 1e4, "target_samples_per_s": None}
    problem = replace(drawn, policy=drawn.policy.model_copy(update=wishes))
    try:
        whole = solve(replace(problem, keeps_all=True))
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve(problem)
        return
    pruned = solve(problem)
    ratios = [plan.usd_per_hour / plan.samples_per_s for plan in (pruned, whole)]
    assert ratios[0] == pytest.approx(ratios[1], rel=2 * MIP_GAP)


def useful_of(market: Market, workload: Workload, policy: Policy) -> Useful:
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Useful(Problem(columns, market, workload, policy, FleetState()), PACE, is_eased=True)


def test_a_plan_of_one_offer_trains_and_rolls_out_on_it(
    make_offer: Callable[..., Offer], make_market: Callable[..., Market], workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 1.0))
    bounds = {}
    for most in (1, 2):
        useful = useful_of(market, workload, policy.model_copy(update={"max_pools": most}))
        (ranked,) = trial_at(useful).sites
        bounds[most] = pairs_at(useful, ranked, INFINITY).usd_per_hour
    assert bounds[1] == pytest.approx(2 * 20.0, rel=0.02)  # start-up is the rest
    assert bounds[2] == pytest.approx(20.0 + 1.0, rel=0.02)


def test_sites_come_by_what_their_cheapest_pair_costs(
    make_offer: Callable[..., Offer], make_market: Callable[..., Market], workload: Workload, policy: Policy
) -> None:
    """A cheap gang in a region from which no second offer is in reach, nor survives, is no cheap plan."""
    narrow = policy.model_copy(update={"max_pools": 2, "survival_share": 0.5})
    market = make_market(
        make_offer("big8", 20.0, region="us-one", network_gb_per_s=0.01),
        make_offer("big8", 24.0, region="us-two"),
        make_offer("lean8", 9.0, region="us-three"),
    )
    useful = useful_of(market, workload, narrow)
    trial = trial_at(useful)
    lowers = [lower for lower, _ in cheapest_first(useful, trial.sites, trial.least)]
    first = next(ranked for _, ranked in cheapest_first(useful, trial.sites, trial.least))
    assert lowers == sorted(lowers)
    assert first.site.anchor.region == "us-two"
    assert np.all(np.diff([ranked.least_usd_per_hour for ranked in trial.sites]) >= 0)


@pytest.mark.parametrize(("name", "tok_per_s"), [("Qwen2.5-1.5B", 20e3), ("Qwen2.5-7B", 10e3), ("Qwen2.5-14B", 8e3)])
def test_a_plan_of_two_offers_is_proven_on_the_bundled_market(name: str, tok_per_s: float) -> None:
    workload = Workload(model=find_model(name))
    policy = Policy(target_samples_per_s=tok_per_s / workload.tokens_per_sample, max_pools=2)
    plan = make_plan(SnapshotMarket().market(NOW_S), workload, policy, FleetState()).plan.allocation
    assert plan.proof.gap <= MIP_GAP * (1.0 + 1e-6)
    assert len({plan.trainer.column.offer_id, *(share.column.offer_id for share in plan.rollout)}) == 2
