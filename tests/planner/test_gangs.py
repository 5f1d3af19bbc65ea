import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.market import Market
from hexcloud.domain.offer import place_of
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from tests.planner.oracle import FEWER, Makers, problems
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_prices_are_those_of_the_problem(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    table = problem.gang_table.all
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


def test_the_largest_gang_of_each_offer_is_known_for_all_and_for_some(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    names, every = list(problem.offers), problem.gang_table.all
    for able in (every, every[np.arange(0, len(every), 3)], every[np.arange(0)]):
        for number, name in enumerate(names):
            nodes = [gang.nodes for gang in able.columns if gang.offer_id == name]
            assert able.taken[number] == max(nodes, default=0)


@given(st.data())
@FEWER
def test_between_two_throughputs_only_gangs_count_that_beat_every_smaller_one(
    makers: Makers, data: st.DataObject
) -> None:
    problem = data.draw(problems(makers))
    low = data.draw(st.sampled_from([1.0, 6.0, 9.0]))
    high = low * data.draw(st.sampled_from([1.0, 1.5, 10.0]))
    kept = set(problem.gang_table.between(low, high).columns)
    for gang in problem.gangs:
        smaller = [one for one in problem.gangs if one.offer_id == gang.offer_id and one.nodes < gang.nodes]
        best = max((one.samples_per_s for one in smaller), default=0.0) * problem.duty
        rate = gang.samples_per_s * problem.duty
        assert (gang in kept) == (low <= rate > best < high)


def test_the_most_a_site_makes_for_a_budget_is_what_its_best_gang_leaves_for_rollout(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem, budget, usd_per_sample_s = problem_of(market, workload, policy), 60.0, 3.0
    most = problem.gang_table.most_by_site(budget, usd_per_sample_s)
    assert len(most) == len(problem.sites)
    for site in problem.sites:
        there = (gang for gang in problem.gangs if place_of(gang.offer_id) == place_of(site.anchor.id))
        affordable = [gang for gang in there if problem.gang_usd_per_hour(gang) < budget]
        each = [
            min(gang.samples_per_s * problem.duty, (budget - problem.gang_usd_per_hour(gang)) / usd_per_sample_s)
            for gang in affordable
        ]
        assert most[site.number] == pytest.approx(max(each, default=-np.inf))


def test_ranked_sites_name_the_price_of_each_gang(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    for row in problem.gang_table.ranked(10.0, 1e9):
        assert row.able.usd_per_hour == pytest.approx([problem.gang_usd_per_hour(gang) for gang in row.gangs])
        assert row.least_usd_per_hour == min(row.able.usd_per_hour)
