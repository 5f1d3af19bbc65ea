from collections.abc import Callable

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.clash import MOST_NAMES, clashing_rules
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def problem_of(market: Market, workload: Workload, policy: Policy) -> Problem:
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())


def test_an_empty_market_has_neither_gang_nor_rollout(
    make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = Problem(Columns(rollout=(), trainer=()), make_market(), workload, policy, FleetState())
    assert clashing_rules(problem, 1.0) == ("one_gang", "rollout_rate")


def test_a_fantastic_target_outruns_trainer_and_staleness_bound(
    market: Market, workload: Workload, policy: Policy
) -> None:
    rules = clashing_rules(problem_of(market, workload, policy), 1e9)
    assert {"train_rate", "staleness_reach"} <= set(rules)
    assert len(rules) <= MOST_NAMES


def test_a_small_quota_is_named(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(quota="q", quota_units=96), quotas=(Quota(key="q", left=100),))
    assert clashing_rules(problem_of(market, workload, policy), 5.0)[0] == "quota[q]"


def test_a_rule_about_whole_machines_is_found_too(market: Market, workload: Workload, policy: Policy) -> None:
    """Relaxed to fractions, one pool could be a tenth of ten pools."""
    narrow = policy.model_copy(update={"max_pools": 1, "survival_share": 0.4})
    rules = clashing_rules(problem_of(market, workload, narrow), 5.0)
    assert any(name == "pools" or name.startswith("survive[") for name in rules)


def test_regions_too_far_to_carry_weights_to_are_named(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """Two regions would survive each other's loss, but weights take a minute between them."""
    market = make_market(make_offer("big8", 20.0), make_offer("big8", 20.0, region="eu-one"))
    careful = policy.model_copy(update={"survival_share": 0.5})
    rules = clashing_rules(problem_of(market, workload, careful), 25.0)
    assert rules[0] == "staleness_reach"
    assert any(name.startswith("survive[") for name in rules)
