from dataclasses import replace

import pytest

from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.freshness import farthest_s
from hexcloud.planner.useful import Useful
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_rows_are_the_columns_in_their_order(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    table, names = problem.table, list(problem.offers)
    assert len(table) == len(problem.rollout)
    for row, column in enumerate(problem.rollout):
        offer = problem.offers[column.offer_id]
        assert names[table.offer[row]] == offer.id
        assert table.slots[row] == column.slots
        assert table.cores[row] == problem.reward_vcpus(column)
        assert table.is_spot[row] == (offer.tenure is Tenure.SPOT)
        names_of_domains, domains = table.domains
        assert names_of_domains[domains[row]] == offer.domain
        assert table.price[row] == pytest.approx(offer.usd_per_hour + problem.new_machine_usd_per_hour(offer))


def test_rates_and_reach_are_those_of_the_problem(market: Market, workload: Workload, policy: Policy) -> None:
    problem = replace(problem_of(market, workload, policy), keeps_all=True)
    useful = Useful(problem, 8.0)
    for row, column in enumerate(problem.rollout):
        assert useful.rates[row] == pytest.approx(problem.rate(column, 8.0))
        assert useful.is_near[row] == problem.is_young_enough(column, 0.0, 8.0)
        assert useful.farthest_s[row] == farthest_s(workload, column.tp, column.generation_s, problem.step_s(8.0))


def test_one_place_is_one_zone_domain_and_tenure(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    seen: dict[int, set[tuple[str, str | None, Tenure]]] = {}
    for row, column in enumerate(problem.rollout):
        offer = problem.offers[column.offer_id]
        number = int(problem.facts.place[problem.table.offer[row]])
        seen.setdefault(number, set()).add((offer.domain, offer.zone, offer.tenure))
    assert all(len(places) == 1 for places in seen.values())
    assert len(set.union(*seen.values())) == len(seen)


def test_only_quotas_that_bind_are_drawn_on(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    plain, bound = make_offer(), make_offer(zone="b", quota="here", quota_units=8, quota_global="all")
    market = make_market(plain, bound, quotas=(Quota(key="all", left=64),))
    problem = problem_of(market, workload, policy)
    (draw,) = problem.table.draws
    for column, quota, units in zip(problem.rollout, draw.quota, draw.units, strict=True):
        key = problem.facts.quotas[quota]
        assert (key, units) == (("all", 8.0) if column.offer_id == bound.id else ("", 0.0))
    assert problem_of(make_market(plain, bound), workload, policy).table.draws == ()
