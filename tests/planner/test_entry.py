from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.entry import MARGIN, entry
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import Found, cheapest, held_in
from tests.planner.oracle import EXAMPLES, Makers, problems

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def problem_of(market: Market, workload: Workload, policy: Policy) -> Problem:
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())


def test_the_price_it_names_is_where_both_plans_cost_the_same(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    found = entry(problem, [OfferId("acme/us-one/a/lean8/on_demand")], 20_000 / 2048)
    assert found is not None and found.enters_at_usd_per_hour is not None
    best = cheapest(problem, 20_000 / 2048, 0.0)
    assert best is not None
    assert 0 < found.enters_at_usd_per_hour < 12.0
    assert found.extra_usd_per_hour is not None and found.extra_usd_per_hour > 0


@given(st.data())
@EXAMPLES
def test_the_price_it_names_brings_the_offer_in_when_granted(makers: Makers, data: st.DataObject) -> None:
    drawn = data.draw(problems(makers))
    problem = replace(drawn, policy=drawn.policy.model_copy(update={"max_usd_per_hour": None}))
    target, wanted = problem.policy.target_samples_per_s, data.draw(st.sampled_from(problem.market.offers))
    assert target is not None
    best = cheapest(problem, target, 0.0)
    if best is None or wanted.id in names_of(best):
        return
    found = entry(problem, [wanted.id], target)
    if found is None or found.enters_at_usd_per_hour is None:
        return
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": found.enters_at_usd_per_hour}) if offer.id == wanted.id else offer
        for offer in problem.market.offers
    )
    granted = replace(problem, market=problem.market.model_copy(update={"offers": offers}))
    for gap in (0.0, MIP_GAP):
        assert wanted.id in held_by(solve(granted, gap))


def held_by(plan: Allocation) -> set[OfferId]:
    return {plan.trainer.column.offer_id} | {share.column.offer_id for share in plan.rollout}


def names_of(found: Found) -> set[OfferId]:
    held = held_in(found)
    return {held.gang.offer_id} | {column.offer_id for column, _ in held.rollout}


def test_of_several_offers_the_one_that_costs_least_extra_is_named(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    names = [OfferId(f"acme/us-one/a/{kind}/on_demand") for kind in ("lean8", "lean1")]
    both = entry(problem, names, 20_000 / 2048)
    each = [entry(problem, [name], 20_000 / 2048) for name in names]
    assert both is not None
    assert both.extra_usd_per_hour == pytest.approx(
        min(one.extra_usd_per_hour for one in each if one and one.extra_usd_per_hour is not None), abs=0.02
    )


def test_what_no_plan_can_hold_has_no_entry(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    lone = make_offer("lean1", 1.0, tenure=Tenure.SPOT)
    market = make_market(make_offer("big8", 20.0), lone)
    strict = policy.model_copy(update={"max_pools": 1})
    assert entry(problem_of(market, workload, strict), [lone.id], 5.0) is None


A_CENT = 0.01
"""Of less, a thousandth is below the solver's tolerance."""
PRICES = st.lists(st.floats(0.5, 30.0), min_size=7, max_size=7)


@given(prices=PRICES, survival=st.sampled_from([0.0, 0.5]), target=st.floats(3.0, 20.0), spot_trainer=st.booleans())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_price_it_names_brings_a_machine_into_everybodys_plan_and_a_higher_one_does_not(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    prices: list[float],
    survival: float,
    target: float,
    spot_trainer: bool,
) -> None:
    kinds = [
        ("big8", "a"),
        ("big8", "b"),
        ("big1", "a"),
        ("lean8", "a"),
        ("lean8", "b"),
        ("lean1", "a"),
        ("lean1", "b"),
    ]
    tenures = [Tenure.ON_DEMAND, Tenure.SPOT]
    offers = [
        make_offer(kind, usd, zone=zone, tenure=tenures[index % 2])
        for index, ((kind, zone), usd) in enumerate(zip(kinds, prices, strict=True))
    ]
    policy = Policy(target_samples_per_s=target, survival_share=survival, spot_trainer=spot_trainer)
    problem = problem_of(make_market(*offers), workload, policy)
    best = cheapest(problem, target, 0.0)
    for offer in (one for one in offers if best and one.id not in names_of(best)):
        found = entry(problem, [offer.id], target)
        if found is None or (found.enters_at_usd_per_hour or 0.0) < A_CENT:
            continue
        others = [one for one in offers if one.id != offer.id]
        without = cheapest(problem_of(make_market(*others), workload, policy), target, 0.0)
        assert without is not None
        enters_at = found.enters_at_usd_per_hour or 0.0
        dear = enters_at * 1.01 + 0.01 + 2 * MARGIN * without.solution.objective
        for price, is_in in ((enters_at, True), (dear, False)):
            granted = make_market(*others, offer.model_copy(update={"usd_per_hour": price}))
            there = cheapest(problem_of(granted, workload, policy), target, 0.0)
            assert there is not None
            assert (there.solution.objective < without.solution.objective * (1 - 1e-9)) == is_in
            planned = held_by(make_plan(granted, workload, policy, FleetState()).plan.allocation)
            assert is_in == (offer.id in planned)
