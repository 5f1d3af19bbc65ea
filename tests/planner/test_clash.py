from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.clash import clashing_rules, told_clashes
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from hexcloud.planner.unruled import Ruled
from tests.planner.oracle import EXAMPLES, Makers, brute_force, problems
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def listed(market: Market, workload: Workload, policy: Policy) -> Problem:
    """Return the problem that `make_plan` solves."""
    columns, _ = build_columns(screen(market, workload, policy, FleetState()).offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())


def test_an_empty_market_has_neither_gang_nor_rollout(
    make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = Problem(Columns(rollout=(), trainer=()), make_market(), workload, policy, FleetState())
    assert clashing_rules(problem, 1.0) == ("one_gang", "rollout_rate")


def test_what_no_wish_can_change_is_said(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    huge = workload.model_copy(update={"model": workload.model.model_copy(update={"params": 10**13})})
    assert "memory" in clashing_rules(listed(make_market(make_offer("big8")), huge, policy), 1.0)


def test_a_fantastic_target_outruns_every_trainer(market: Market, workload: Workload, policy: Policy) -> None:
    assert clashing_rules(problem_of(market, workload, policy), 1e9) == ("train_rate",)


def test_a_pace_at_which_engines_would_only_load_weights_is_named(
    market: Market, workload: Workload, policy: Policy
) -> None:
    small = workload.model_copy(update={"samples_per_step": 8})
    problem = problem_of(market, small, policy.model_copy(update={"max_nodes_per_pool": 64, "max_gang_nodes": 64}))
    rules = clashing_rules(problem, 200.0)
    assert rules in {("pauses",), ("train_rate",)}


def test_nothing_clashes_where_there_is_a_plan(market: Market, workload: Workload, policy: Policy) -> None:
    assert clashing_rules(listed(market, workload, policy), 5.0) == ()


def test_a_cap_under_every_plan_clashes_alone(market: Market, workload: Workload, policy: Policy) -> None:
    """Were survival or any other rule spared, the cheapest gang and machine would still cost more."""
    poor = policy.model_copy(update={"max_usd_per_hour": 1.0, "survival_share": 0.5})
    assert clashing_rules(listed(market, workload, poor), 20_000 / 2048) == ("hourly_budget",)


def test_a_small_quota_is_named(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(quota="q", quota_units=96), quotas=(Quota(key="q", left=100),))
    assert clashing_rules(problem_of(market, workload, policy), 5.0) == ("quota[q]",)


def test_a_rule_about_whole_machines_is_found_too(market: Market, workload: Workload, policy: Policy) -> None:
    """Relaxed to fractions, one pool could be a tenth of ten pools."""
    narrow = policy.model_copy(update={"max_pools": 1, "survival_share": 0.4})
    assert set(clashing_rules(problem_of(market, workload, narrow), 5.0)) == {"pools", "survive"}


def test_regions_too_far_to_carry_weights_to_are_named(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """Two regions would survive each other's loss, but weights take a minute between them."""
    market = make_market(make_offer("big8", 20.0), make_offer("big8", 20.0, region="eu-one"))
    careful = policy.model_copy(update={"survival_share": 0.5})
    rules = clashing_rules(problem_of(market, workload, careful), 25.0)
    assert {"staleness_reach", "survive"} <= set(rules)


@pytest.mark.parametrize(
    ("wishes", "rule", "mend"),
    [
        ({"regions": ("mars-*",)}, "region", "regions"),
        ({"gpus": ("NONE",)}, "gpu", "gpus"),
        ({"clouds": ("none",)}, "cloud", "--cloud"),
        ({"max_price_age_h": 0.5}, "price_age", "max_price_age_h"),
    ],
)
def test_a_wish_that_turns_every_offer_away_is_named_with_its_number_and_its_mend(
    market: Market, workload: Workload, policy: Policy, wishes: dict[str, object], rule: str, mend: str
) -> None:
    later = market.model_copy(update={"as_of": market.as_of + timedelta(hours=1)})
    choosy = policy.model_copy(update=wishes)
    rules = clashing_rules(listed(later, workload, choosy), 5.0)
    (clash,) = told_clashes(rules, later, workload, choosy, FleetState())
    assert (clash.rule, clash.turned_away) == (rule, 10)
    assert mend in clash.mend


def test_a_quota_of_nothing_is_named_with_the_offers_that_draw_on_it(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offers = (
        make_offer("big8", quota_global="all"),
        make_offer("lean8", 2.0, stock=1),
        make_offer("big1", quota_global="all"),
    )
    market = make_market(*offers, quotas=(Quota(key="all", left=0.0),))
    rules = clashing_rules(listed(market, workload, policy), 5.0)
    clash = told_clashes(rules, market, workload, policy, FleetState())
    assert [(one.rule, one.turned_away) for one in clash if one.rule.startswith("quota")] == [("quota[all]", 2)]


def test_two_wishes_of_which_either_could_go_are_both_named(market: Market, workload: Workload, policy: Policy) -> None:
    choosy = policy.model_copy(update={"regions": ("us-two",), "max_spot_share": 0.0, "max_nodes_per_pool": 1})
    rules = set(clashing_rules(listed(market, workload, choosy), 5.0))
    assert {"region", "spot_share"} <= rules
    assert_irreducible(Ruled(listed(market, workload, choosy)), tuple(rules), 5.0)


def assert_irreducible(ruled: Ruled, rules: tuple[str, ...], samples_per_s: float) -> None:
    others = set(ruled.names) - set(rules)
    assert cheapest(ruled.without(others), samples_per_s, 0.0) is None
    for rule in rules:
        assert cheapest(ruled.without(others | {rule}), samples_per_s, 0.0) is not None, rule


@given(st.data(), st.floats(1.0, 60.0))
@EXAMPLES
def test_the_rules_clash_and_without_any_one_of_them_the_others_can_be_kept(
    makers: Makers, data: st.DataObject, samples_per_s: float
) -> None:
    problem = data.draw(problems(makers))
    rules = clashing_rules(problem, samples_per_s, is_market=False)
    if brute_force(problem, samples_per_s) is not None:
        assert rules == ()
        return
    assert rules
    ruled = Ruled(problem, is_market=False)
    if set(rules) <= set(ruled.names) and cheapest(ruled.without(ruled.names), samples_per_s, 0.0):
        assert_irreducible(ruled, rules, samples_per_s)
        if "stock" in rules:  # else the oracle can count for itself
            others = set(ruled.names) - set(rules)
            assert brute_force(ruled.without(others), samples_per_s) is None


@pytest.mark.parametrize("objective", list(Objective))
def test_one_pool_that_must_survive_its_own_loss_is_told_without_a_search(
    market: Market, workload: Workload, policy: Policy, objective: Objective
) -> None:
    wishes = {"max_pools": 1, "survival_share": 0.5, "objective": objective, "budget_usd": 1e6, "run_samples": 1e4}
    problem = listed(market, workload, policy.model_copy(update=wishes))
    with pytest.raises(InfeasibleError) as refused:
        solve(problem)
    assert refused.value.rules == ("survive", "pools")
    assert cheapest(problem, 1.0, 1e-3) is None, "what is known is so"
    for rule in refused.value.rules:
        assert cheapest(Ruled(problem).without([rule]), 1.0, 1e-3) is not None
