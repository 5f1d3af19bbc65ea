from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.shadow import ShadowPrice, shadow_prices

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def solved(market: Market, workload: Workload, policy: Policy) -> tuple[Problem, Allocation]:
    columns, _ = build_columns(market.offers, market, workload, policy)
    problem = Problem(columns, market, workload, policy, FleetState())
    return problem, solve(problem, gap=0.0)


def usd_per_hour(market: Market, workload: Workload, policy: Policy) -> float:
    return solved(market, workload, policy)[1].usd_per_hour


def priced(market: Market, workload: Workload, policy: Policy) -> dict[str, ShadowPrice]:
    """Return prices by the kinds of their rules."""
    prices = shadow_prices(*solved(market, workload, policy))
    return {rule.partition("[")[0]: price for price in prices for rule in price.rules}


def test_every_binding_rule_has_one_price_and_the_dearest_comes_first(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem, allocation = solved(market, workload, policy.model_copy(update={"survival_share": 0.5}))
    prices = shadow_prices(problem, allocation)
    named = [rule for price in prices for rule in price.rules]
    assert sorted(named) == sorted(allocation.proof.binding)
    savings = [price.saves_usd_per_hour for price in prices]
    assert savings == sorted(savings, key=lambda usd: -(usd or 0.0))
    assert all(usd is not None and usd >= 0 for usd in savings)


def test_the_price_of_the_target_is_what_a_tenth_less_saves(market: Market, workload: Workload, policy: Policy) -> None:
    target = policy.target_samples_per_s or 0.0
    less = policy.model_copy(update={"target_samples_per_s": target * 0.9})
    saves = usd_per_hour(market, workload, policy) - usd_per_hour(market, workload, less)
    price = priced(market, workload, policy)["train_rate"]
    assert price.saves_usd_per_hour == pytest.approx(saves, abs=0.01)
    assert "10% less throughput (2000 tok/s)" in price.change


def test_the_price_of_survival_is_what_a_smaller_share_saves(
    market: Market, workload: Workload, policy: Policy
) -> None:
    strict, mild = (policy.model_copy(update={"survival_share": share}) for share in (0.7, 0.6))
    saves = usd_per_hour(market, workload, strict) - usd_per_hour(market, workload, mild)
    price = priced(market, workload, strict)["survive"]
    assert price.saves_usd_per_hour == pytest.approx(saves, abs=0.01)
    assert "0.60 instead of 0.70" in price.change


def test_one_more_machine_of_a_pool_is_worth_what_a_deeper_pool_saves(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    def of_depth(stock: int) -> Market:
        cheap = make_offer("lean1", 0.5, stock=stock)
        return make_market(make_offer("big8", 20.0, stock=1), cheap, make_offer("lean1", 2.0, zone="b"))

    saves = usd_per_hour(of_depth(2), workload, policy) - usd_per_hour(of_depth(3), workload, policy)
    price = priced(of_depth(2), workload, policy)["stock"]
    assert saves > 1.0
    assert price.saves_usd_per_hour == pytest.approx(saves, abs=0.01)


def test_a_quota_is_priced_in_the_clouds_own_unit(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    cheap = make_offer("lean1", 0.5, quota="vcpus", quota_units=24.0)
    offers = (make_offer("big8", 20.0, stock=1), cheap, make_offer("lean1", 2.0, zone="b"))
    market = make_market(*offers, quotas=(Quota(key="vcpus", left=24.0),))
    price = priced(market, workload, policy)["quota"]
    assert price.change == "24 more units of vcpus"
    assert price.saves_usd_per_hour is not None and price.saves_usd_per_hour > 1.0


def test_a_cap_is_priced_by_what_more_throughput_would_cost(market: Market, workload: Workload, policy: Policy) -> None:
    fastest = policy.model_copy(
        update={"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None, "max_usd_per_hour": 40.0}
    )
    problem, allocation = solved(market, workload, fastest)
    allocation = allocation.model_copy(
        update={"proof": allocation.proof.model_copy(update={"binding": ("hourly_budget",)})}
    )
    (price,) = shadow_prices(problem, allocation)
    assert price.saves_usd_per_hour is not None and price.saves_usd_per_hour < 0


def test_a_rule_without_a_dial_has_no_price(market: Market, workload: Workload, policy: Policy) -> None:
    problem, allocation = solved(market, workload, policy)
    odd = allocation.proof.model_copy(update={"binding": ("require[x]", "stock[gone]")})
    assert shadow_prices(problem, allocation.model_copy(update={"proof": odd})) == ()


@pytest.mark.parametrize("rule", ["in_flight", "reward_cpu", "pools", "spot_share"])
def test_every_other_rule_is_priced_too(market: Market, workload: Workload, policy: Policy, rule: str) -> None:
    strict = policy.model_copy(update={"max_pools": 3, "max_spot_share": 0.6})
    problem, allocation = solved(market, workload, strict)
    bound = allocation.proof.model_copy(update={"binding": (rule,)})
    (price,) = shadow_prices(problem, allocation.model_copy(update={"proof": bound}))
    assert price.saves_usd_per_hour is not None and price.saves_usd_per_hour >= 0
    assert price.meaning
