from collections.abc import Callable
from itertools import pairwise

import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns

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
