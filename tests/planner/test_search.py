from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import SolverStoppedError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner import alike, search
from hexcloud.planner.milp import INFINITY, Solution, Status
from hexcloud.planner.search import at_site, cheapest
from hexcloud.planner.trial import cap_usd_per_hour, trial_at
from hexcloud.planner.useful import Useful
from tests.planner.oracle import FEWER, Makers, problems
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_cheapest_price_rises_with_throughput(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    prices = []
    for target in (2.0, 6.0, 10.0, 14.0):
        found = cheapest(problem, target, 0.0)
        assert found is not None
        prices.append(found.solution.objective)
    assert prices == sorted(prices)


def test_bound_is_never_above_the_price(market: Market, workload: Workload, policy: Policy) -> None:
    found = cheapest(problem_of(market, workload, policy), 10.0, 0.05)
    assert found is not None
    assert found.solution.objective * 0.95 <= found.bound <= found.solution.objective


@pytest.mark.parametrize(("usd_at_home", "region"), [(16.0, "us-one"), (90.0, "us-two")])
def test_egress_keeps_rollout_at_home_unless_the_trip_pays(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    usd_at_home: float,
    region: str,
) -> None:
    """At 8 samples/s a copy of every version into another region costs 34 USD/h."""
    trainer = make_offer("big8", 20.0, stock=1)
    market = make_market(trainer, make_offer("lean8", usd_at_home), make_offer("lean8", 15.0, region="us-two"))
    found = cheapest(problem_of(market, workload, policy), 8.0, 0.0)
    assert found is not None
    used = {found.rules.offer(column).region for column, n in found.rules.rollout if found.solution.count(n)}
    assert used == {region}


def test_a_solver_that_stops_before_its_proof_is_an_error(
    market: Market, workload: Workload, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "NODE_LIMIT", 0)
    with pytest.raises(SolverStoppedError, match="samples/s"):
        cheapest(problem_of(market, workload, policy), 10.0, 0.0)


KINDS = (("big8", 24.0), ("big1", 3.2), ("lean8", 12.0), ("lean4", 6.2), ("lean2", 3.2), ("lean1", 1.6))


@given(st.data())
@FEWER
def test_what_machines_of_a_kind_cost_rules_out_no_optimum(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    target = problem.policy.target_samples_per_s
    assert target is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_NODES", 0)
        found = cheapest(problem, target, 0.0)
    whole = cheapest(replace(problem, keeps_all=True), target, 0.0)
    assert (found is None) == (whole is None)
    if found is not None and whole is not None:
        assert found.solution.objective == pytest.approx(whole.solution.objective, rel=1e-6)


@given(st.data())
@FEWER
def test_where_any_plan_will_do_one_is_found_if_there_is_one(makers: Makers, data: st.DataObject) -> None:
    """Also when the offers that machines of a kind point at have none: the others are looked at, too."""
    problem = data.draw(problems(makers))
    target = problem.policy.target_samples_per_s
    assert target is not None
    trial, cap = trial_at(Useful(problem, target, is_eased=True)), cap_usd_per_hour(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_few_nodes", lambda rules, gap: Solution(Status.STOPPED, INFINITY, -INFINITY, 0))
        patch.setattr(search, "few_offers", lambda useful, rows: np.zeros(len(useful.table.facts), np.bool_))
        found = [at_site(trial, ranked, INFINITY, cap) for ranked in trial.sites]
    whole = cheapest(replace(problem, keeps_all=True), target, 0.0)
    assert any(one.solution.values for one in found) == (whole is not None)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_search_that_runs_out_of_nodes_returns_its_best_plan_with_what_is_proven(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy, limit: int
) -> None:
    careful = policy.model_copy(update={"survival_share": 0.7, "max_spot_share": 0.8})
    problem = problem_of(make_market(*many_offers(make_offer, 8)), workload, careful)
    best = cheapest(problem, 15.0, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "NODE_LIMIT", limit)
        patch.setattr(search, "MOST_SHARE", 1.0)
        patch.setattr(alike, "NODE_LIMIT", limit)
        found, again = cheapest(problem, 15.0, 1e-3), cheapest(problem, 15.0, 1e-3)
    assert best is not None and found is not None and again is not None
    assert found.bound <= best.solution.objective * (1 + 1e-9)
    assert found.solution.objective >= best.bound * (1 - 1e-9)
    assert found.bound < found.solution.objective * (1 - 1e-3)
    assert (again.solution.objective, again.bound) == (found.solution.objective, found.bound)


def many_offers(make_offer: MakeOffer, places: int) -> list[Offer]:
    return [
        make_offer(
            kind,
            price * (1 + (7 * place + 3 * zone) % 11 / 20) * (0.4 if tenure is Tenure.SPOT else 1.0),
            region=f"us-{place}",
            zone=zone_name,
            tenure=tenure,
        )
        for place in range(places)
        for zone, zone_name in enumerate("abc")
        for tenure in Tenure
        for kind, price in KINDS
    ]


def test_fifteen_hundred_offers_are_planned(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offers = many_offers(make_offer, 42)
    assert len(offers) > 1500
    careful = policy.model_copy(update={"survival_share": 0.5})
    problem = problem_of(make_market(*offers), workload.model_copy(update={"minibatches": 1}), careful)
    found = cheapest(problem, 60.0, 1e-3)
    assert found is not None
    assert found.bound >= found.solution.objective * (1.0 - 1e-3) - 1e-9
