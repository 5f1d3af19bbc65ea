from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Columns, Role, Slot
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.worth import Worth

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def worth_of(slots: tuple[Slot, ...], market: Market, workload: Workload, policy: Policy, pace: float) -> Worth:
    columns = Columns(
        rollout=tuple(slot.rollout for slot in slots if slot.rollout),
        trainer=tuple(slot.trainer for slot in slots if slot.trainer),
    )
    return Worth(Problem(columns, market, workload, policy, FleetState()), pace)


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"survival_share": 0.5},
        {"spot_trainer": True},
        {"max_spot_share": 0.3},
        {"survival_share": 0.5, "max_spot_share": 0.0},
    ],
)
def test_a_plan_is_worth_what_the_solver_said(
    market: Market, workload: Workload, policy: Policy, wishes: dict[str, object]
) -> None:
    wanted = policy.model_copy(update=wishes)
    plan = make_plan(market, workload, wanted, FleetState()).plan
    worth = worth_of(plan.placement.slots, market, workload, wanted, plan.allocation.samples_per_s)
    allocation = plan.allocation
    assert worth.broken(plan.placement.slots) == {}
    assert worth.usd_per_hour(plan.placement.slots) == pytest.approx(
        allocation.usd_per_hour - allocation.one_off_usd_per_hour
    )


def test_what_a_fleet_lacks_is_told_by_rule(market: Market, workload: Workload, policy: Policy) -> None:
    wanted = policy.model_copy(update={"survival_share": 0.5, "max_usd_per_hour": 100.0})
    slots = make_plan(market, workload, wanted, FleetState()).plan.placement.slots
    rollouts = tuple(slot for slot in slots if slot.role is Role.ROLLOUT)
    pace = policy.target_samples_per_s or 0.0
    worth = worth_of(slots, market, workload, wanted.model_copy(update={"max_usd_per_hour": 1.0}), pace)
    assert worth.broken(slots).keys() == {"hourly_budget"}
    assert "target" in worth.broken(rollouts)
    alone = tuple(slot for slot in slots if slot not in rollouts[1:])
    assert any(rule.startswith("survive[") for rule in worth.broken(alone))


def test_the_cap_is_on_the_bill_and_not_on_the_risk_of_a_spot_gang(
    market: Market, workload: Workload, policy: Policy
) -> None:
    daring = policy.model_copy(update={"spot_trainer": True})
    plan = make_plan(market, workload, daring, FleetState()).plan
    slots, bill = plan.placement.slots, plan.forecast.usd_per_hour
    worth = worth_of(slots, market, workload, daring.model_copy(update={"max_usd_per_hour": bill}), 5.0)
    assert worth.bill_usd_per_hour(slots) == pytest.approx(bill)
    assert worth.usd_per_hour(slots) > bill
    assert worth.broken(slots) == {}


def test_a_gang_that_misses_a_node_trains_nothing(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 24.0))
    columns, _ = build_columns(market.offers, market, workload, policy)
    pair = next(column for column in columns.trainer if column.nodes == 2)
    slots = tuple(
        Slot.model_validate(
            {
                "name": f"trainer-{rank}",
                "role": Role.TRAINER,
                "offer_id": pair.offer_id,
                "rank": rank,
                "usd_per_hour": 24.0,
                "trainer": pair,
            }
        )
        for rank in range(2)
    )
    worth = worth_of(slots, market, workload, policy, 5.0)
    assert worth.train_rate(slots) == pytest.approx(pair.samples_per_s)
    assert worth.train_rate(slots[:1]) == 0.0


def test_a_machine_whose_offer_is_gone_keeps_its_last_price_and_its_rate(
    market: Market, workload: Workload, policy: Policy
) -> None:
    slots = make_plan(market, workload, policy, FleetState()).plan.placement.slots
    empty = market.model_copy(update={"offers": ()})
    worth = worth_of(slots, empty, workload, policy, 5.0)
    assert worth.usd_per_hour(slots) == pytest.approx(sum(slot.usd_per_hour for slot in slots))
    assert worth.rollout_rate(slots) > 0


def test_too_much_spot_breaks_the_spot_share(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 4.0, tenure=Tenure.SPOT))
    slots = make_plan(market, workload, policy, FleetState()).plan.placement.slots
    careful = policy.model_copy(update={"max_spot_share": 0.5})
    broken = worth_of(slots, market, workload, careful, 5.0).broken(slots)
    assert broken["spot_share"] == "has 100% of its rollout on spot"


@given(prices=st.lists(st.floats(0.5, 20.0), min_size=8, max_size=8), survival=st.sampled_from([0.0, 0.4]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_worth_and_solver_agree_on_any_spread_over_zones_and_regions(
    make_market: MakeMarket,
    make_offer: MakeOffer,
    workload: Workload,
    policy: Policy,
    prices: list[float],
    survival: float,
) -> None:
    places = [(region, zone) for region in ("us-one", "us-two", "eu-one") for zone in "ab"]
    rollouts = [
        make_offer("lean1", price, region=region, zone=zone, tenure=Tenure.SPOT, stock=3)
        for (region, zone), price in zip(places, prices, strict=False)
    ]
    trainers = [
        make_offer("big8", 10 + price, region=region)
        for region, price in zip(("us-one", "us-two"), prices[6:], strict=True)
    ]
    market = make_market(*rollouts, *trainers)
    wanted = policy.model_copy(update={"survival_share": survival, "target_samples_per_s": 6.0})
    plan = make_plan(market, workload, wanted, FleetState()).plan
    worth = worth_of(plan.placement.slots, market, workload, wanted, plan.allocation.samples_per_s)
    assert worth.broken(plan.placement.slots) == {}
    assert worth.usd_per_hour(plan.placement.slots) == pytest.approx(
        plan.allocation.usd_per_hour - plan.allocation.one_off_usd_per_hour
    )
