from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.listed import listed
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest
from hexcloud.planner.shadow import ShadowPrice, rule_prices, shadow_prices
from tests.planner.oracle import FEWER, Makers, Pick, broken, cost, picks, problems

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def solved(market: Market, workload: Workload, policy: Policy) -> tuple[Problem, Allocation]:
    problem = listed(market, workload, policy)
    return problem, solve(problem, gap=0.0)


def usd_per_hour(market: Market, workload: Workload, policy: Policy) -> float:
    return solved(market, workload, policy)[1].usd_per_hour


def priced(market: Market, workload: Workload, policy: Policy, *rules: str) -> dict[str, ShadowPrice]:
    """Return prices by rule; of other rules than those that bind where some are given."""
    problem, allocation = solved(market, workload, policy)
    proof = allocation.proof.model_copy(update={"binding": rules or allocation.proof.binding})
    return {price.rule: price for price in shadow_prices(problem, allocation.model_copy(update={"proof": proof}))}


def test_every_binding_rule_has_its_own_price_and_domains_have_names(
    market: Market, workload: Workload, policy: Policy
) -> None:
    careful = policy.model_copy(update={"survival_share": 0.5})
    allocation = make_plan(market, workload, careful, FleetState()).plan.allocation
    prices = rule_prices(market, workload, careful, allocation)
    names = [price.rule for price in prices]
    assert names == ["target", *allocation.proof.binding, "staleness_reach"]
    assert any(name.startswith("survive[acme/") for name in names)
    assert all(price.gain_per_unit is not None and price.gain_per_unit >= 0 for price in prices)


def test_the_price_of_the_target_is_what_a_thousand_tokens_less_save(
    market: Market, workload: Workload, policy: Policy
) -> None:
    target = policy.target_samples_per_s or 0.0
    less = policy.model_copy(update={"target_samples_per_s": target - 1000 / workload.tokens_per_sample})
    saves = usd_per_hour(market, workload, policy) - usd_per_hour(market, workload, less)
    price = priced(market, workload, policy)["target"]
    assert price.gain_per_unit == pytest.approx(saves, abs=0.01)
    assert (price.step, price.unit, price.gain_unit) == (1.0, "1000 tok/s", "USD/h")


def test_a_small_target_takes_a_smaller_step_and_says_so(market: Market, workload: Workload, policy: Policy) -> None:
    small = policy.model_copy(update={"target_samples_per_s": 1.0})
    price = priced(market, workload, small)["target"]
    assert price.step == pytest.approx(0.2048)
    assert price.change.startswith("205 tok/s less")


RATES = ("train_rate", "rollout_rate", "survive", "in_flight")


def loosened(problem: Problem, pick: Pick, target: float, rule: str, step: float) -> bool:
    """Does a pick keep every rule when one row may be missed by a step?"""
    names = set(broken(problem, pick, target)) - {rule.partition("[")[0]}
    rates = [(problem.offers[c.offer_id].domain, n * problem.rate(c, target)) for c, n in pick.counts]
    made, share = sum(rate for _, rate in rates), problem.policy.survival_share
    slots = sum(n * c.slots for c, n in pick.counts)
    most = (problem.workload.eta + 1) * problem.workload.samples_per_step
    tight = 1e-6
    is_kept = {
        "train_rate": pick.gang.samples_per_s * problem.duty >= target - step - tight,
        "rollout_rate": made >= target - step - tight,
        "in_flight": slots <= most + problem.workload.samples_per_step,
        "survive": all(
            made - sum(rate for other, rate in rates if other == domain)
            >= share * target - (step if rule == f"survive[{domain}]" else 0.0) - tight
            for domain in {offer.domain for offer in problem.offers.values()}
        ),
    }
    return not names and is_kept[rule.partition("[")[0]]


@given(st.data())
@FEWER
def test_a_row_is_worth_what_counting_every_plan_says(makers: Makers, data: st.DataObject) -> None:
    drawn = data.draw(problems(makers))
    problem = replace(drawn, policy=drawn.policy.model_copy(update={"survival_share": 0.4, "max_spot_share": 1.0}))
    target = problem.policy.target_samples_per_s or 0.0
    if cheapest(problem, target, 0.0) is None:
        return
    allocation = solve(problem, gap=0.0)
    domain = problem.offers[allocation.rollout[0].column.offer_id].domain
    rules = ("train_rate", "rollout_rate", "in_flight", f"survive[{domain}]")
    proof = allocation.proof.model_copy(update={"binding": rules})
    prices = {price.rule: price for price in shadow_prices(problem, allocation.model_copy(update={"proof": proof}))}
    step = min(1000 / problem.workload.tokens_per_sample, target * 0.1)
    every = list(picks(problem))
    for rule in rules:
        costs = [cost(problem, pick, target) for pick in every if loosened(problem, pick, target, rule, step)]
        expected = (allocation.usd_per_hour - min(costs)) / prices[rule].step
        assert prices[rule].gain_per_unit == pytest.approx(expected, abs=0.01), rule


def test_one_more_machine_of_a_pool_is_worth_what_a_deeper_pool_saves(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    def of_depth(stock: int) -> Market:
        cheap = make_offer("lean1", 0.5, stock=stock)
        return make_market(make_offer("big8", 20.0, stock=1), cheap, make_offer("lean1", 2.0, zone="b"))

    saves = usd_per_hour(of_depth(2), workload, policy) - usd_per_hour(of_depth(3), workload, policy)
    price = priced(of_depth(2), workload, policy)["stock[acme/us-one/a/lean1/on_demand]"]
    assert saves > 1.0
    assert price.gain_per_unit == pytest.approx(saves, abs=0.01)
    assert (price.change, price.unit) == ("3 machines", "machine")


def test_where_the_policy_bounds_pools_one_pool_alone_is_a_machine_deeper(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0), make_offer("lean1", 0.5), make_offer("lean1", 0.6, zone="b"))
    shallow = policy.model_copy(update={"max_nodes_per_pool": 1, "target_samples_per_s": 4.0})
    price = priced(market, workload, shallow, "stock[acme/us-one/a/lean1/on_demand]")
    name = "acme/us-one/a/lean1/on_demand"
    offers = tuple(one.model_copy(update={"stock": 1 + (one.id == name)}) for one in market.offers)
    deeper = market.model_copy(update={"offers": offers})
    wide = shallow.model_copy(update={"max_nodes_per_pool": 2})
    saves = usd_per_hour(market, workload, shallow) - usd_per_hour(deeper, workload, wide)
    assert saves > 0.05
    assert price["stock[acme/us-one/a/lean1/on_demand]"].gain_per_unit == pytest.approx(saves, abs=0.01)


def test_a_quota_is_priced_in_the_clouds_own_unit_and_lets_in_what_it_kept_out(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    cheap = make_offer("lean1", 0.5, quota="vcpus", quota_units=24.0)
    offers = (make_offer("big8", 20.0, stock=1), cheap, make_offer("lean1", 2.0, zone="b"))

    def with_left(left: float) -> Market:
        return make_market(*offers, quotas=(Quota(key="vcpus", left=left),))

    for left in (24.0, 12.0):
        saves = usd_per_hour(with_left(left), workload, policy) - usd_per_hour(with_left(left + 24), workload, policy)
        price = priced(with_left(left), workload, policy, "quota[vcpus]")["quota[vcpus]"]
        assert price.change == "24 more units of vcpus"
        assert saves > 1.0
        assert price.gain_per_unit == pytest.approx(saves / 24.0, abs=0.01)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("spot_share", {"max_spot_share": 0.3}, {"max_spot_share": 0.31}),
        ("spot_share", {"max_spot_share": 0.0}, {"max_spot_share": 0.01}),
        ("pools", {"max_pools": 1}, {"max_pools": 2}),
    ],
)
def test_a_wish_is_worth_what_the_next_one_saves(
    market: Market, workload: Workload, policy: Policy, rule: str, before: dict[str, object], after: dict[str, object]
) -> None:
    strict, mild = (policy.model_copy(update=wish) for wish in (before, after))
    saves = usd_per_hour(market, workload, strict) - usd_per_hour(market, workload, mild)
    assert priced(market, workload, strict, rule)[rule].gain_per_unit == pytest.approx(saves, abs=0.01)


def test_rewards_are_priced_by_the_core(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0, stock=1), make_offer("lean1", 1.0, vcpus=2.0, stock=8))
    busy = workload.model_copy(update={"reward_cpu_s_per_sample": 1.2})
    wish = policy.model_copy(update={"target_samples_per_s": 5.0})
    price = priced(market, busy, wish, "reward_cpu")["reward_cpu"]
    less = busy.model_copy(update={"reward_cpu_s_per_sample": 1.0})
    saves = usd_per_hour(market, busy, wish) - usd_per_hour(market, less, wish)
    assert saves > 0.5
    assert price.gain_per_unit == pytest.approx(saves, abs=0.01)
    assert price.unit == "vCPU"


def test_one_version_more_is_worth_what_a_higher_eta_saves(market: Market, workload: Workload, policy: Policy) -> None:
    price = priced(market, workload, policy)["staleness_reach"]
    older = workload.model_copy(update={"eta": workload.eta + 1})
    saves = usd_per_hour(market, workload, policy) - usd_per_hour(market, older, policy)
    assert price.gain_per_unit == pytest.approx(saves, abs=0.01)
    assert price.change == "eta 5 instead of 4"


def fastest_policy(policy: Policy, cap: float) -> Policy:
    wishes = {"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None, "max_usd_per_hour": cap}
    return policy.model_copy(update=wishes)


def test_a_cap_is_priced_in_throughput_per_dollar(market: Market, workload: Workload, policy: Policy) -> None:
    caps = (30.0, 31.0)
    made = [solved(market, workload, fastest_policy(policy, cap))[1].samples_per_s for cap in caps]
    price = priced(market, workload, fastest_policy(policy, caps[0]), "hourly_budget")["hourly_budget"]
    gained = (made[1] - made[0]) * workload.tokens_per_sample
    assert price.gain_per_unit == pytest.approx(gained, rel=1e-3, abs=20.0)
    assert (price.gain_unit, price.unit) == ("tok/s", "USD/h")


def test_under_another_objective_a_rule_is_worth_throughput_or_money_for_the_run(
    market: Market, workload: Workload, policy: Policy
) -> None:
    price = priced(market, workload, fastest_policy(policy, 40.0), "train_rate")["train_rate"]
    assert price.gain_unit == "tok/s"
    run = {"objective": Objective.BUDGET_RUN, "budget_usd": 1e5, "run_samples": 1e6, "target_samples_per_s": None}
    hurried = policy.model_copy(update=run | {"deadline_h": 1e6 / 12.0 / 3600.0})
    prices = priced(market, workload, hurried, "train_rate")
    assert {price.gain_unit for price in prices.values()} == {"USD"}
    assert prices["deadline"].change == "a deadline 1 h later"
    assert "target" not in prices


def test_a_rule_without_a_dial_has_no_price(market: Market, workload: Workload, policy: Policy) -> None:
    assert priced(market, workload, policy, "require[x]", "stock[gone]", "quota[gone]").keys() == {
        "target",
        "staleness_reach",
    }
