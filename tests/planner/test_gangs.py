from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def problem_of(market: Market, workload: Workload, policy: Policy) -> Problem:
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())


def test_prices_are_those_of_the_problem(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    table = problem.gang_table
    for gang, usd, rate in zip(problem.gangs, table.usd_per_hour, table.rates, strict=True):
        assert usd == pytest.approx(problem.gang_usd_per_hour(gang))
        assert rate == pytest.approx(gang.samples_per_s * problem.duty)


def test_each_offer_sends_its_cheapest_gang_that_is_fast_enough(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    ranked = problem.gang_table.ranked(10.0, 1e9)
    chosen = [gang for row in ranked for gang in row.gangs]
    assert len({gang.offer_id for gang in chosen}) == len(chosen)
    for gang in chosen:
        rivals = [one for one in problem.gangs if one.offer_id == gang.offer_id and one.samples_per_s >= 10.0]
        assert gang.nodes == min(one.nodes for one in rivals)
    least = [row.least_usd_per_hour for row in ranked]
    assert least == sorted(least)


def test_sites_over_the_budget_are_left_out(market: Market, workload: Workload, policy: Policy) -> None:
    table = problem_of(market, workload, policy).gang_table
    assert table.ranked(10.0, 1.0) == []
    assert table.ranked(1e9, 1e9) == []


def test_ways_are_measured_from_the_best_network_of_a_site(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    slow, fast = make_offer("big8", network_gb_per_s=1.0), make_offer("big1", network_gb_per_s=9.0)
    (site,) = problem_of(make_market(slow, fast), workload, policy).sites
    assert site.anchor == fast
