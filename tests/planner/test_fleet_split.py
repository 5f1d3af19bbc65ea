from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState, MeasuredLink
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.fleet_split import split_fleet, use_everything
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


@given(
    big=st.integers(1, 4),
    lean=st.integers(0, 5),
    small=st.integers(0, 3),
    where=st.tuples(*[st.sampled_from(["us-one", "eu-one"])] * 3),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_split_is_as_fast_as_the_solver_with_all_choices(
    make_market: MakeMarket,
    make_offer: MakeOffer,
    workload: Workload,
    big: int,
    lean: int,
    small: int,
    where: tuple[str, ...],
) -> None:
    counts = {"big8": big, "lean8": lean, "big1": small}
    places = dict(zip(counts, where, strict=True))
    offers = [make_offer(kind, 1.0, stock=count, region=places[kind]) for kind, count in counts.items() if count]
    wishes = Policy(objective=Objective.MAX_THROUGHPUT, survival_share=0.0)
    market = make_market(*offers)
    try:
        free = make_plan(market, workload, wishes, FleetState()).plan
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            split_fleet(market, workload, wishes)
        return
    split = split_fleet(market, workload, wishes).plan
    assert split.allocation.samples_per_s >= free.allocation.samples_per_s * (1 - 2 * MIP_GAP)
    ceiling = split.allocation.proof.upper_bound_samples_per_s
    assert ceiling is not None and ceiling >= free.allocation.samples_per_s * (1 - 1e-9), "it is proven of all splits"


def test_a_fleet_of_which_no_machine_can_do_the_job_is_told_so(
    two_kinds: Market, workload: Workload, policy: Policy
) -> None:
    gpus = {name: gpu.model_copy(update={"has_bf16": False}) for name, gpu in two_kinds.gpus.items()}
    with pytest.raises(InfeasibleError, match="no bf16"):
        split_fleet(two_kinds.model_copy(update={"gpus": gpus}), workload, policy)


def test_slots_are_the_fleets_own_machines_and_measured_links_choose_among_them(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    fleet = make_market(make_offer("big8", 1.0, stock=4))
    names = [SlotName(f"big8#{number}") for number in range(1, 5)]
    slow = {frozenset(pair): 2.0 for pair in combinations(names, 2)} | {frozenset(names[1:4:2]): 45.0}
    measured = tuple(
        MeasuredLink(source=min(pair), target=max(pair), gb_per_s=speed, latency_ms=0.0) for pair, speed in slow.items()
    )
    plan = split_fleet(fleet, workload, policy, measured).plan
    assert {slot.name for slot in plan.placement.slots} <= set(names)
    assert len({slot.name for slot in plan.placement.slots}) == len(plan.placement.slots)
    if len(plan.ranks) == 2:
        assert set(plan.ranks) == {"big8#2", "big8#4"}
    assert {route.gb_per_s for route in plan.routes} <= {2.0, 45.0}
    assert split_fleet(fleet, workload, policy).plan.allocation == plan.allocation


def test_machines_of_one_name_in_two_places_are_told_apart(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    fleet = make_market(make_offer("big8", 1.0, stock=2), make_offer("big8", 1.0, zone="b", stock=2))
    slots = split_fleet(fleet, workload, policy).plan.placement.slots
    assert all(slot.name.startswith(slot.offer_id + "#") for slot in slots)


def test_the_wishes_of_a_split_are_their_own(two_kinds: Market, policy: Policy) -> None:
    once = use_everything(two_kinds, policy)
    assert use_everything(two_kinds, once) == once
    assert once.max_nodes_per_pool == 6
