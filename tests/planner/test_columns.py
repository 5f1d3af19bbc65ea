import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import TrainerColumn
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import PASS_TOKENS_PLANNED
from hexcloud.planner.allocate import solve
from hexcloud.planner.columns import build_columns, crew_of
from hexcloud.planner.problem import Problem

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def test_rollout_comes_at_every_degree_and_halving_and_smaller_batches_finish_sooner(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8")
    columns, rejections = build_columns((offer,), make_market(offer), workload, policy)
    shapes = {(column.tp, column.batch) for column in columns.rollout}
    assert {tp for tp, _ in shapes} == {1, 2, 4}
    for tp in (1, 2, 4):
        batches = sorted(batch for degree, batch in shapes if degree == tp)
        assert batches[0] == 1
        assert all(more // 2 == less for less, more in pairwise(batches))
        own = [column for column in columns.rollout if column.tp == tp]
        assert all(less.generation_s < more.generation_s for less, more in pairwise(own))
        assert all(less.samples_per_s < more.samples_per_s for less, more in pairwise(own))
    assert rejections == ()


def test_columns_do_not_depend_on_what_is_asked(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offers = (make_offer("big8"), make_offer("lean8", 9.0))
    asks = (
        {"target_samples_per_s": 1.0},
        {"target_samples_per_s": 1e6},
        {"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None, "max_usd_per_hour": 5.0},
    )
    built = [build_columns(offers, make_market(*offers), workload, policy.model_copy(update=ask))[0] for ask in asks]
    assert built[0] == built[1] == built[2]


def test_equal_machines_get_equal_columns(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    here, there = make_offer("big8"), make_offer("big8", 5.0, region="us-two")
    columns, _ = build_columns((here, there), make_market(here, there), workload, policy)
    own = {
        offer.id: [column.model_dump(exclude={"offer_id"}) for column in columns.rollout if column.offer_id == offer.id]
        for offer in (here, there)
    }
    assert own[here.id] == own[there.id] and own[here.id]


def test_one_machine_never_holds_more_slots_than_admission_fills(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8")
    small = workload.model_copy(update={"samples_per_step": 64, "eta": 1})
    columns, _ = build_columns((offer,), make_market(offer), small, policy)
    assert columns.rollout
    assert all(column.slots <= 2 * 64 for column in columns.rollout)


def test_tensor_parallelism_divides_heads_and_machine(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(offer := make_offer("big8"))
    small = market.gpus["BIG"].model_copy(update={"hbm_gib": 14.0})
    market = market.model_copy(update={"gpus": {"BIG": small}})
    columns, _ = build_columns((offer,), market, workload, policy)
    assert columns.rollout
    for column in columns.rollout:
        assert column.tp > 1
        assert workload.model.heads % column.tp == 0
        assert column.tp * column.replicas == 8


def test_gangs_have_every_number_of_nodes_up_to_stock_and_policy(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big1", stock=70)
    willing = policy.model_copy(update={"max_gang_nodes": 100})
    columns, _ = build_columns((offer,), make_market(offer), workload, willing)
    assert [gang.nodes for gang in columns.trainer][-20:] == list(range(45, 65))
    columns, _ = build_columns((offer,), make_market(offer), workload, policy.model_copy(update={"max_gang_nodes": 7}))
    assert [gang.nodes for gang in columns.trainer][-1] == 7
    few = make_offer("big8", stock=5)
    columns, _ = build_columns((few,), make_market(few), workload, policy)
    assert [gang.nodes for gang in columns.trainer] == [1, 2, 3, 4, 5]
    assert all(gang.layout.ranks == 8 * gang.nodes for gang in columns.trainer)
    assert all(gang.step_s == pytest.approx(256 / gang.samples_per_s) for gang in columns.trainer)


def test_the_users_ranks_are_all_that_train_and_need_as_many_gpus(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offers = (make_offer("big8", stock=5), make_offer("big2", stock=5))
    job = workload.model_copy(update={"trainer_ranks": 4})
    columns, _ = build_columns(offers, make_market(*offers), job, policy)
    assert {gang.offer_id for gang in columns.trainer} == {offers[0].id}
    assert all(gang.layout.ranks == 4 * gang.nodes == gang.formation.size for gang in columns.trainer)
    every, _ = build_columns(offers, make_market(*offers), workload, policy)
    assert columns.trainer[-1].samples_per_s < every.trainer[-1].samples_per_s


def test_a_gang_makes_the_users_passes_or_the_fastest_that_fit(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8", stock=2)

    def gangs(tokens: int | None) -> tuple[TrainerColumn, ...]:
        job = workload.model_copy(update={"micro_batch_tokens": tokens})
        return build_columns((offer,), make_market(offer), job, policy)[0].trainer

    free = gangs(None)
    for tokens in PASS_TOKENS_PLANNED:
        asked = gangs(tokens)
        assert all(gang.layout.pass_tokens == tokens for gang in asked)
        assert all(gang.samples_per_s <= best.samples_per_s for gang, best in zip(asked, free, strict=True))
    assert {gang.layout.pass_tokens for gang in free} <= set(PASS_TOKENS_PLANNED)
    assert gangs(10_000_000) == ()


def test_spot_gangs_need_a_policy_that_wants_them(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8", tenure=Tenure.SPOT)
    market = make_market(offer)
    assert build_columns((offer,), market, workload, policy)[0].trainer == ()
    willing = policy.model_copy(update={"spot_trainer": True})
    assert build_columns((offer,), market, workload, willing)[0].trainer


def test_a_gang_has_no_more_ranks_than_samples(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8")
    small = workload.model_copy(update={"samples_per_step": 16})
    columns, _ = build_columns((offer,), make_market(offer), small, policy)
    assert [gang.nodes for gang in columns.trainer] == [1, 2]


def test_an_offer_for_neither_role_is_rejected_with_its_memory(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big1", tenure=Tenure.SPOT)
    market = make_market(offer)
    tiny = market.gpus["BIG"].model_copy(update={"hbm_gib": 15.0})
    columns, rejections = build_columns((offer,), market.model_copy(update={"gpus": {"BIG": tiny}}), workload, policy)
    assert (columns.rollout, columns.trainer) == ((), ())
    assert [rejection.rule for rejection in rejections] == ["memory"]


def test_columns_are_sorted_by_offer(market: Market, workload: Workload, policy: Policy) -> None:
    columns, _ = build_columns(market.offers[::-1], market, workload, policy)
    names = [column.offer_id for column in columns.rollout]
    assert names == sorted(names)


def kinds_by_nodes(offer: Offer, market: Market, workload: Workload, policy: Policy) -> dict[int, str]:
    columns, _ = build_columns((offer,), market, workload, policy)
    gangs = {gang.nodes: gang.layout.kind for gang in columns.trainer}
    assert len(gangs) == len(columns.trainer), "one gang of each size"
    return gangs


def test_a_gang_over_a_slow_network_copies_its_state_to_every_machine_where_it_fits(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8", stock=4, network_gb_per_s=1.25)
    market = make_market(offer)
    assert kinds_by_nodes(offer, market, workload, policy) == {1: "fsdp", 2: "hsdp", 3: "hsdp", 4: "hsdp"}
    small = market.gpus["BIG"].model_copy(update={"hbm_gib": 24.0})
    tight = market.model_copy(update={"gpus": {**market.gpus, "BIG": small}})
    assert set(kinds_by_nodes(offer, tight, workload, policy).values()) == {"fsdp"}


@pytest.mark.parametrize("network_gb_per_s", [1.25, 50.0])
def test_the_fastest_layout_of_a_gang_is_the_one_that_is_planned(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy, network_gb_per_s: float
) -> None:
    offer = make_offer("big4", stock=6, network_gb_per_s=network_gb_per_s)
    market = make_market(offer)
    rates: dict[int, dict[tuple[LayoutKind, ...], float]] = {}
    for kinds in ((LayoutKind.FSDP,), (LayoutKind.HSDP,), (LayoutKind.TP,), tuple(LayoutKind)):
        job = workload.model_copy(update={"layouts": kinds})
        for gang in build_columns((offer,), market, job, policy)[0].trainer:
            rates.setdefault(gang.nodes, {})[kinds] = gang.samples_per_s
    assert len(rates) == 6
    for one in rates.values():
        free = one.pop(tuple(LayoutKind))
        assert one and free == max(one.values())


@pytest.mark.parametrize("kind", LayoutKind)
def test_a_layout_that_the_user_names_is_the_only_one(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy, kind: LayoutKind
) -> None:
    offer = make_offer("big4", stock=3, network_gb_per_s=1.25)
    pinned = workload.model_copy(update={"layouts": (kind,)})
    assert kinds_by_nodes(offer, make_market(offer), pinned, policy) == dict.fromkeys((1, 2, 3), kind.value)


def test_tensor_parallel_gangs_divide_heads_kv_heads_and_mlp_by_a_machines_gpus(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    eight = make_offer("big8")  # 28 heads
    pinned = workload.model_copy(update={"layouts": (LayoutKind.TP,)})
    assert kinds_by_nodes(eight, make_market(eight), pinned, policy) == {}
    four = make_offer("big4", stock=2)
    odd = pinned.model.model_copy(update={"intermediate": 18_945})
    assert kinds_by_nodes(four, make_market(four), pinned, policy)
    assert kinds_by_nodes(four, make_market(four), pinned.model_copy(update={"model": odd}), policy) == {}


def test_a_tensor_parallel_gang_may_have_more_gpus_than_a_batch_has_samples(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big4", stock=4)
    few = workload.model_copy(update={"samples_per_step": 8})
    assert kinds_by_nodes(offer, make_market(offer), few, policy)[4] == "tp"


def test_no_plan_is_lost_with_the_layouts_that_are_left_out(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """A plan has one gang in one layout: the best of all is the best of the best with each."""
    offers = (make_offer("big4", stock=6, network_gb_per_s=25.0), make_offer("lean8", 9.0, stock=9))
    market, wanted = make_market(*offers), policy.model_copy(update={"target_samples_per_s": 10.0})

    def usd_per_hour(*kinds: LayoutKind) -> float:
        job = workload.model_copy(update={"layouts": kinds})
        columns, _ = build_columns(offers, market, job, wanted)
        try:
            return solve(Problem(columns, market, job, wanted, FleetState()), gap=0.0).usd_per_hour
        except InfeasibleError:
            return math.inf

    alone = [usd_per_hour(kind) for kind in LayoutKind]
    assert usd_per_hour(*LayoutKind) == pytest.approx(min(alone))
    assert min(alone) < usd_per_hour(LayoutKind.FSDP)


def test_gangs_that_are_remembered_are_those_of_todays_facts_and_job(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """Planning one job, a slower GPU, a wider network and a smaller step in one process confuses nothing."""
    offer = make_offer("big8")
    wider = offer.model_copy(update={"network_gb_per_s": 4 * offer.network_gb_per_s})
    market = make_market(offer)
    slower = tuple(row.model_copy(update={"mfu": row.mfu / 2}) for row in market.calibration.efficiencies)
    slow = market.model_copy(update={"calibration": market.calibration.model_copy(update={"efficiencies": slower})})
    small = workload.model_copy(update={"samples_per_step": workload.samples_per_step // 2})
    asks = [(offer, market, workload), (offer, slow, workload), (wider, market, workload), (offer, market, small)]

    def gangs() -> list[tuple[TrainerColumn, ...]]:
        return [build_columns((one,), where, job, policy)[0].trainer for one, where, job in asks]

    crew_of.cache_clear()
    first, again = gangs(), gangs()
    assert first == again
    assert len({tuple(gang.samples_per_s for gang in crew) for crew in first}) == len(asks)
    for crew, (one, where, job) in zip(first, asks, strict=True):
        crew_of.cache_clear()
        assert build_columns((one,), where, job, policy)[0].trainer == crew
