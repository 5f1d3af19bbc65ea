from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.entry import entry
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest

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
    assert found.extra_usd_per_hour > 0


def test_of_several_offers_the_one_that_costs_least_extra_is_named(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    names = [OfferId(f"acme/us-one/a/{kind}/on_demand") for kind in ("lean8", "lean1")]
    both = entry(problem, names, 20_000 / 2048)
    each = [entry(problem, [name], 20_000 / 2048) for name in names]
    assert both is not None
    assert both.extra_usd_per_hour == pytest.approx(
        min(one.extra_usd_per_hour for one in each if one is not None), abs=0.02
    )


def test_what_no_plan_can_hold_has_no_entry(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    lone = make_offer("lean1", 1.0, tenure=Tenure.SPOT)
    market = make_market(make_offer("big8", 20.0), lone)
    strict = policy.model_copy(update={"max_pools": 1})
    assert entry(problem_of(market, workload, strict), [lone.id], 5.0) is None
