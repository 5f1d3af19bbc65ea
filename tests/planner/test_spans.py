"""Which machines make a replica together: those of GPUs of which no machine holds the model, and no others."""

from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import TCP_GB_PER_S, build_columns
from hexcloud.planner.forecast import arrivals_s
from hexcloud.planner.listed import listed
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.spans import Spans, is_legal_across, legal_tp
from tests.planner.oracle import LARGE

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


@pytest.fixture
def large(workload: Workload) -> Workload:
    """A 70B model: 131 GiB of weights, of which one BIG GPU holds 72 and a machine of eight LEAN 691."""
    return workload.model_copy(update={"model": LARGE, "spans": (2, 4)})


def test_a_replica_takes_one_machine_where_any_machine_of_the_gpu_holds_the_model(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload
) -> None:
    few = make_market(make_offer("big1"), make_offer("lean8"))
    assert Spans(few, large).of(few.gpus["BIG"]) == (2, 4)
    assert Spans(few, large).of(few.gpus["LEAN"]) == (1,)
    more = make_market(make_offer("big1"), make_offer("big8"))
    assert Spans(more, large).of(more.gpus["BIG"]) == (1,)
    assert Spans(few, large.model_copy(update={"spans": ()})).of(few.gpus["BIG"]) == (1,)


def test_wishes_change_nothing_of_it(make_offer: MakeOffer, make_market: MakeMarket, large: Workload) -> None:
    """A machine that the policy leaves out is still one that the market lists: else fewer rules had fewer columns."""
    market = make_market(make_offer("big1"), make_offer("big8", region="us-two"), make_offer("lean8"))
    for policy in (Policy(regions=("us-one",)), Policy()):
        assert all(column.nodes == 1 for column in listed(market, large, policy).rollout)


@pytest.mark.parametrize(("tp", "is_legal"), [(2, True), (8, True), (16, True), (32, True), (64, True), (24, False)])
def test_gpus_of_several_machines_divide_heads_and_layers(tp: int, is_legal: bool) -> None:
    assert is_legal_across(tp, LARGE) is is_legal


def test_inside_a_machine_the_degree_divides_it_too() -> None:
    assert legal_tp(8, LARGE) == [1, 2, 4, 8] and legal_tp(6, LARGE) == [1, 2]


def test_a_column_of_two_machines_has_all_their_gpus_and_one_rate(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy
) -> None:
    offer = make_offer("big1", stock=8)
    columns, rejections = build_columns((offer,), make_market(offer), large, policy)
    assert rejections == ()
    assert {(column.nodes, column.tp, column.replicas) for column in columns.rollout} == {(2, 2, 1), (4, 4, 1)}
    assert all(column.spread_s > 0 for column in columns.rollout)
    most = {nodes: max(one.batch for one in columns.rollout if one.nodes == nodes) for nodes in (2, 4)}
    assert most[4] > 2 * most[2], "what the weights leave of each GPU grows"


def test_only_the_head_of_a_replica_scores(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy
) -> None:
    """Members run their part of the engine and nothing else, so their cores are no help to rewards."""
    market = make_market(make_offer("big1", stock=8, vcpus=12.0))
    problem = Problem(build_columns(market.offers, market, large, policy)[0], market, large, policy, FleetState())
    assert {column.nodes for column in problem.rollout} == {2, 4}
    assert {problem.reward_vcpus(column) for column in problem.rollout} == {11.0}
    assert set(problem.table.cores.tolist()) == {11.0}


def test_equal_gpus_behind_slower_networks_are_other_columns(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy
) -> None:
    fast = make_offer("big1", stock=8, network_gb_per_s=50.0)
    slow = make_offer("big1", stock=8, network_gb_per_s=1.25, region="us-two")
    columns, _ = build_columns((fast, slow), make_market(fast, slow), large, policy)
    rates = {name: max(one.samples_per_s for one in columns.rollout_of(name)) for name in (fast.id, slow.id)}
    assert rates[slow.id] < 0.7 * rates[fast.id]


def test_machines_that_are_rented_without_their_fast_fabric_have_a_slower_network(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy
) -> None:
    """A machine of AWS lists what EFA gives; nobody asks for EFA."""
    networks = {"aws": 400.0, "elsewhere": 400.0, "slow": TCP_GB_PER_S["aws"]}
    offers = [
        make_offer("big1", stock=8, cloud=cloud, network_gb_per_s=gb_per_s) for cloud, gb_per_s in networks.items()
    ]
    columns, _ = build_columns(tuple(offers), make_market(*offers), large, policy)
    rates = {one.cloud: max(column.samples_per_s for column in columns.rollout_of(one.id)) for one in offers}
    assert rates["aws"] == rates["slow"] < rates["elsewhere"]


def test_what_does_not_fit_the_most_machines_either_is_refused_with_what_they_hold(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy, fleet: FleetState
) -> None:
    offer = make_offer("big1")
    huge = large.model_copy(update={"model": LARGE.model_copy(update={"params": 6 * LARGE.params})})
    (refusal,) = screen(make_market(offer), huge, policy, fleet).rejections
    assert refusal.rule == "memory" and "the GPUs of 4 machines hold 288.0 GiB" in refusal.reason


def test_an_offer_of_which_too_few_can_be_had_says_how_many_it_takes(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, policy: Policy
) -> None:
    offer = make_offer("big1", stock=1)
    columns, (refusal,) = build_columns((offer,), make_market(offer), large, policy)
    assert columns.rollout == ()
    assert refusal.rule == "stock" and "takes at least 2 machines, 1 can be had" in refusal.reason


def test_a_plan_counts_pays_and_names_every_machine_of_a_replica(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, fleet: FleetState
) -> None:
    market = make_market(make_offer("big1", 1.0, stock=8), make_offer("lean8", 30.0, stock=4))
    wishes = Policy(target_samples_per_s=0.05, survival_share=0.0)
    plan = make_plan(market, large, wishes, fleet).plan
    (share,) = plan.allocation.rollout
    assert share.column.nodes == 2 and share.machines == 2 * share.count
    assert share.usd_per_hour == pytest.approx(share.machines * 1.0)
    slots = [slot for slot in plan.placement.slots if slot.rollout is not None]
    assert len(slots) == share.machines and {slot.rank for slot in slots} == {0, 1}
    heads = {slot.name for slot in slots if slot.rank == 0}
    assert {slot.head for slot in slots} == heads and {route.target for route in plan.routes} == heads
    assert plan.placement.usd_per_hour == pytest.approx(plan.allocation.rent_usd_per_hour)
    machines = {slot.name: market.offer(slot.offer_id) for slot in plan.placement.slots}
    arrivals = arrivals_s(plan.routes, {name: one for name, one in machines.items() if one}, large.model.weight_bytes)
    assert plan.forecast.weight_sync_s == pytest.approx(max(arrivals.values()) + share.column.spread_s)
