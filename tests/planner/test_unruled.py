from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from hexcloud.planner.unruled import Ruled

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def ruled(market: Market, workload: Workload, policy: Policy) -> Ruled:
    columns, _ = build_columns(screen(market, workload, policy, FleetState()).offers, market, workload, policy)
    return Ruled(Problem(columns, market, workload, policy, FleetState()))


def price(problem: Problem, samples_per_s: float) -> float:
    found = cheapest(problem, samples_per_s, 0.0)
    assert found is not None
    return found.solution.objective


def test_only_rules_that_say_something_are_named(market: Market, workload: Workload, policy: Policy) -> None:
    names = set(ruled(market, workload, policy).names)
    assert {"rollout_rate", "train_rate", "in_flight", "stock"} <= names
    assert not names & {"hourly_budget", "survive", "spot_share", "pools", "cloud", "region", "gpu", "price_age"}
    strict = policy.model_copy(
        update={"max_usd_per_hour": 9.0, "survival_share": 0.5, "max_pools": 3, "gpus": ("BIG",)}
    )
    assert {"hourly_budget", "survive", "pools", "gpu"} <= set(ruled(market, workload, strict).names)


@pytest.mark.parametrize(
    ("rule", "wishes"),
    [
        ("survive", {"survival_share": 0.6}),
        ("spot_share", {"max_spot_share": 0.0}),
        ("pools", {"max_pools": 1}),
        ("region", {"regions": ("us-one",)}),
        ("gpu", {"gpus": ("BIG",)}),
        ("stock", {"max_nodes_per_pool": 1}),
    ],
)
def test_a_plan_without_a_rule_costs_what_it_costs_where_nobody_wished_it(
    market: Market, workload: Workload, policy: Policy, rule: str, wishes: dict[str, object]
) -> None:
    strict = ruled(market, workload, policy.model_copy(update=wishes))
    free = ruled(market, workload, policy)
    dearer = []
    for pace in (4.0, 9.0, 14.0):
        wanted = price(free.problem, pace)
        assert price(strict.without([rule]), pace) == pytest.approx(wanted)
        found = cheapest(strict.problem, pace, 0.0)
        dearer.append(found is None or found.solution.objective > wanted + 0.01)
    assert any(dearer)


def test_speeds_that_cannot_be_in_the_way_leave_one_machine_and_the_cheapest_gang(
    market: Market, workload: Workload, policy: Policy
) -> None:
    one = ruled(market, workload, policy)
    free = cheapest(one.without(["rollout_rate", "train_rate", "reward_cpu"]), 20.0, 0.0)
    assert free is not None
    assert sum(free.solution.count(machines) for _, machines in free.rules.rollout) == 1
    assert free.solution.objective < price(one.problem, 9.0)


def test_a_rule_counts_the_offers_it_turns_away(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    drawing = make_offer("big8", quota="q", quota_units=8.0)
    market = make_market(drawing, make_offer("lean8", 3.0, region="us-two"), quotas=(Quota(key="q", left=4.0),))
    one = ruled(market, workload, policy.model_copy(update={"regions": ("us-one",)}))
    assert (one.turned_away("quota[q]"), one.turned_away("region"), one.turned_away("in_flight")) == (1, 1, 0)


def test_columns_that_are_not_the_markets_get_no_company(market: Market, workload: Workload, policy: Policy) -> None:
    narrow = policy.model_copy(update={"regions": ("us-one",)})
    problem = ruled(market, workload, narrow).problem
    here = Ruled(problem, is_market=False)
    assert "region" not in here.names
    assert here.without(here.names).offers.keys() == problem.offers.keys()
