from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.entry import ALMOST_FREE
from hexcloud.planner.explain import WhyNotKind, why_not
from hexcloud.planner.plan import make_plan
from tests.planner.oracle import FEWER

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]

WISHES: dict[Objective, dict[str, object]] = {
    Objective.MIN_COST: {},
    Objective.MAX_THROUGHPUT: {"target_samples_per_s": None},
    Objective.BUDGET_RUN: {"target_samples_per_s": None, "budget_usd": 1e6, "run_samples": 1e5},
}


def planned(market: Market, workload: Workload, policy: Policy) -> Allocation:
    return make_plan(market, workload, policy, FleetState()).plan.allocation


def held_by(plan: Allocation) -> set[OfferId]:
    return {plan.trainer.column.offer_id} | {share.column.offer_id for share in plan.rollout}


def at_price(market: Market, name: OfferId, usd_per_hour: float) -> Market:
    offers = tuple(one.twin(usd_per_hour=usd_per_hour) if one.id == name else one for one in market.offers)
    return market.model_copy(update={"offers": offers})


def judged(market: Market, workload: Workload, policy: Policy) -> list[bool]:
    """Ask of each offer that is not in the plan and grant what is said; whether there was a price, offer by offer."""
    found = []
    held = held_by(planned(market, workload, policy))
    for offer in (one for one in market.offers if one.id not in held):
        answer = why_not(offer.id, market, workload, policy)
        if answer.kind is WhyNotKind.REFUSED:
            continue
        price = answer.enters_at_usd_per_hour
        granted = at_price(market, offer.id, offer.usd_per_hour * ALMOST_FREE if price is None else price)
        assert (offer.id in held_by(planned(granted, workload, policy))) == (price is not None), answer.reason
        found.append(price is not None)
    return found


@pytest.mark.parametrize("wishes", [{"max_usd_per_hour": 60.0}, {"objective": Objective.BUDGET_RUN}])
def test_a_price_is_good_for_an_objective_that_chooses_its_throughput_too(
    market: Market, workload: Workload, policy: Policy, wishes: dict[str, object]
) -> None:
    run = {"budget_usd": 1e6, "run_samples": 1e5, "target_samples_per_s": None, "objective": Objective.MAX_THROUGHPUT}
    assert sum(judged(market, workload, policy.model_copy(update=run | wishes))) >= 3


KINDS = (("big8", "a"), ("big8", "b"), ("big1", "a"), ("lean8", "a"), ("lean8", "b"), ("lean1", "a"), ("lean1", "b"))
PRICES = st.lists(st.floats(0.5, 30.0), min_size=len(KINDS), max_size=len(KINDS))


@given(
    prices=PRICES,
    objective=st.sampled_from(list(Objective)),
    survival=st.sampled_from([0.0, 0.5]),
    target=st.floats(3.0, 20.0),
    cap=st.sampled_from([None, 30.0, 60.0]),
    eta=st.sampled_from([4, 1]),
    spot_trainer=st.booleans(),
)
@settings(FEWER, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_price_that_is_told_brings_the_offer_in_and_where_none_is_told_next_to_nothing_does_not(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    prices: list[float],
    objective: Objective,
    survival: float,
    target: float,
    cap: float | None,
    eta: int,
    spot_trainer: bool,
) -> None:
    tenures = [Tenure.ON_DEMAND, Tenure.SPOT]
    offers = [
        make_offer(kind, usd, zone=zone, tenure=tenures[index % 2])
        for index, ((kind, zone), usd) in enumerate(zip(KINDS, prices, strict=True))
    ]
    rules = Policy(
        target_samples_per_s=target, survival_share=survival, spot_trainer=spot_trainer, max_usd_per_hour=cap
    )
    policy = rules.model_copy(update={"objective": objective} | WISHES[objective])
    try:
        judged(make_market(*offers), workload.model_copy(update={"eta": eta}), policy)
    except InfeasibleError:
        return


def test_an_offer_too_slow_for_the_thriftiest_plan_comes_in_by_slowing_it_down(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload
) -> None:
    """At the plan's throughput no plan can hold it, but when it is cheap enough a slower one makes cheaper samples."""
    policy = Policy(objective=Objective.BUDGET_RUN, budget_usd=1e6, run_samples=1e5, survival_share=0.0)
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 12.0, gpu="SLOW"))
    slow = {"name": "SLOW", "hbm_gb_per_s": 200.0, "bf16_tflops": 30.0}
    market = market.model_copy(update={"gpus": market.gpus | {"SLOW": market.gpus["LEAN"].model_copy(update=slow)}})
    answer = why_not("lean8", market, workload, policy)
    assert answer.kind is WhyNotKind.TOO_DEAR and answer.enters_at_usd_per_hour
    assert answer.extra_usd_per_hour is None and "at today's throughput no plan can hold it" in answer.reason
    assert judged(market, workload, policy) == [True]
