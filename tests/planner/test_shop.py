from dataclasses import replace

import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.shop import CANNOT, GAP, Shop, open_shop

TARGET = 20_000 / 2048


@pytest.fixture
def shop(market: Market, workload: Workload, policy: Policy) -> Shop:
    return open_shop(market, workload, policy, TARGET)


def cost(shop: Shop) -> float:
    usd_per_hour = shop.price()
    assert usd_per_hour is not None
    return usd_per_hour


def test_fewer_choices_never_cost_less(shop: Shop) -> None:
    everything = cost(shop)
    for fewer in (shop.on_demand(), shop.of_gpu("BIG"), shop.of_cloud("acme"), shop.greedy()):
        price = fewer.price()
        assert price is None or price >= everything * (1 - GAP)


def test_on_demand_shops_hold_no_spot_offer(shop: Shop) -> None:
    assert {offer.tenure for offer in shop.on_demand().problem.offers.values()} == {Tenure.ON_DEMAND}


def test_the_policys_cap_does_not_count_and_the_shops_own_does(
    market: Market, workload: Workload, policy: Policy, shop: Shop
) -> None:
    poor = policy.model_copy(update={"max_usd_per_hour": 1.0})
    assert open_shop(market, workload, poor, TARGET).price() == shop.price()
    assert shop.capped(cost(shop) * 0.9).price() is None
    assert shop.capped(cost(shop) * 0.9).bid("poor").row.reason == f"pays over {cost(shop) * 0.9:.2f} USD/h"


def test_a_buyer_who_could_not_for_any_money_is_told_from_one_who_would_pay_too_much(shop: Shop) -> None:
    too_fast = replace(shop.capped(1.0), samples_per_s=1e6)
    assert too_fast.bid("x").row.reason == f"{CANNOT}: none of its gangs trains fast enough"
    lone = shop.only(lambda offer: offer.id == "acme/us-one/a/big1/on_demand")
    careful = replace(lone.problem, policy=lone.problem.policy.model_copy(update={"survival_share": 0.5}))
    assert Shop(careful, 1.0).capped(1000.0).bid("x").row.reason == f"{CANNOT} under the plan's rules"


def test_the_best_single_type_is_the_cheapest_of_all_types(shop: Shop) -> None:
    best = shop.best_single_type()
    prices = {gpu: shop.of_gpu(gpu).price() for gpu in shop.values(lambda offer: offer.gpu)}
    assert best is not None
    gpu, found = best
    assert prices[gpu] == found.solution.objective == min(price for price in prices.values() if price is not None)


def test_who_has_no_fast_gang_has_no_floor_and_is_told_why(shop: Shop, workload: Workload) -> None:
    fast = Shop(shop.problem, 1e6)
    assert fast.floor_usd_per_hour() == INFINITY
    assert fast.best_single_type() is None
    assert "the trainer gang must train the target" in fast.bid("fast").row.reason
