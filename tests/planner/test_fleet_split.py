from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.fleet_split import split_fleet
from hexcloud.planner.plan import make_plan

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


@pytest.fixture
def two_kinds(make_market: MakeMarket, make_offer: MakeOffer) -> Market:
    """One machine with much compute, six with much memory bandwidth."""
    return make_market(make_offer("big8", 1.0, stock=1), make_offer("lean8", 1.0, stock=6))


def test_compute_trains_and_bandwidth_rolls_out(two_kinds: Market, workload: Workload, policy: Policy) -> None:
    plan = split_fleet(two_kinds, workload, policy).plan
    trainers = {slot.offer_id for slot in plan.placement.role(Role.TRAINER)}
    assert trainers == {"acme/us-one/a/big8/on_demand"}
    assert {slot.offer_id for slot in plan.placement.role(Role.ROLLOUT)} == {"acme/us-one/a/lean8/on_demand"}


def test_no_machine_is_used_twice_and_each_unused_one_is_named(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    fleet = make_market(make_offer("big8", 1.0, stock=2), make_offer("lean1", 1.0, stock=1, region="eu-one"))
    result = split_fleet(fleet, workload, policy)
    used = Counter(slot.offer_id for slot in result.plan.placement.slots)
    for offer in fleet.offers:
        assert used[offer.id] <= (offer.stock or 0)
    told = {rejection.offer_id for rejection in result.rejections}
    assert told | used.keys() == {offer.id for offer in fleet.offers}
    assert not told & used.keys()


def test_prices_caps_and_survival_do_not_count_for_machines_that_are_there(
    two_kinds: Market, workload: Workload, policy: Policy
) -> None:
    strict = policy.model_copy(
        update={"max_usd_per_hour": 0.01, "survival_share": 0.9, "regions": ("mars",), "target_samples_per_s": 1e6}
    )
    assert split_fleet(two_kinds, workload, strict) == split_fleet(two_kinds, workload, policy)


def test_a_fleet_that_cannot_train_is_told_so(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    huge = workload.model_copy(update={"model": workload.model.model_copy(update={"params": 90_000_000_000})})
    with pytest.raises(InfeasibleError):
        split_fleet(make_market(make_offer("big8", 1.0, stock=1)), huge, policy)


@given(big=st.integers(1, 4), lean=st.integers(0, 5), small=st.integers(0, 3))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_split_is_as_fast_as_the_solver_with_all_choices(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, big: int, lean: int, small: int
) -> None:
    counts = {"big8": big, "lean8": lean, "big1": small}
    offers = [make_offer(kind, 1.0, stock=count) for kind, count in counts.items() if count]
    wishes = Policy(objective=Objective.MAX_THROUGHPUT, survival_share=0.0)
    market = make_market(*offers)
    try:
        free = make_plan(market, workload, wishes, FleetState()).plan
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            split_fleet(market, workload, wishes)
        return
    split = split_fleet(market, workload, wishes).plan
    assert split.allocation.samples_per_s >= free.allocation.samples_per_s * 0.99


def test_a_fleet_of_which_no_machine_can_do_the_job_is_told_so(
    two_kinds: Market, workload: Workload, policy: Policy
) -> None:
    gpus = {name: gpu.model_copy(update={"has_bf16": False}) for name, gpu in two_kinds.gpus.items()}
    with pytest.raises(InfeasibleError, match="no bf16"):
        split_fleet(two_kinds.model_copy(update={"gpus": gpus}), workload, policy)
