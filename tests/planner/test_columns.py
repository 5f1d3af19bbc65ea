from collections.abc import Callable

import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def test_rollout_comes_at_three_batches_and_smaller_ones_finish_sooner(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big1")
    columns, rejections = build_columns((offer,), make_market(offer), workload, policy)
    assert [column.batch for column in columns.rollout] == [64, 128, 256]
    assert columns.rollout[0].generation_s < columns.rollout[2].generation_s
    assert columns.rollout[0].samples_per_s < columns.rollout[2].samples_per_s
    assert rejections == ()


def test_a_slow_gpu_gets_a_column_that_is_quick_enough_for_the_target(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("lean8", gpu="SLOW")
    market = make_market(offer)
    slow = market.gpus["LEAN"].model_copy(update={"name": "SLOW", "hbm_gib": 24.0, "hbm_gb_per_s": 600.0})
    market = market.model_copy(update={"gpus": market.gpus | {"SLOW": slow}})
    fast = policy.model_copy(update={"target_samples_per_s": 30_000 / 2048})
    allowed_s = workload.eta * workload.samples_per_step / (30_000 / 2048)
    columns, _ = build_columns((offer,), market, workload, fast)
    quick = [column for column in columns.rollout if column.generation_s < allowed_s]
    assert quick and all(column.tp > 1 for column in quick)
    unhurried = policy.model_copy(update={"target_samples_per_s": 1.0})
    slow_columns, _ = build_columns((offer,), market, workload, unhurried)
    assert not [column for column in slow_columns.rollout if column.generation_s < allowed_s]


def test_where_the_throughput_is_not_known_columns_get_sooner_step_by_step(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("lean8")
    most = policy.model_copy(update={"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None})
    columns, _ = build_columns((offer,), make_market(offer), workload, most)
    usual, _ = build_columns((offer,), make_market(offer), workload, policy)
    quickest = min(column.generation_s for column in columns.rollout)
    assert quickest < 0.5 * min(column.generation_s for column in usual.rollout)
    for one in columns.rollout:
        rivals = [other for other in columns.rollout if other.tp == one.tp and other.batch < one.batch]
        assert all(other.samples_per_s <= one.samples_per_s for other in rivals)


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


def test_gangs_grow_in_steps_up_to_stock_and_policy(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    offer = make_offer("big8", stock=5)
    columns, _ = build_columns((offer,), make_market(offer), workload, policy)
    assert [gang.nodes for gang in columns.trainer] == [1, 2, 3, 4]
    assert all(gang.layout.ranks == 8 * gang.nodes for gang in columns.trainer)
    assert all(gang.step_s == pytest.approx(256 / gang.samples_per_s) for gang in columns.trainer)
    few, _ = build_columns((offer,), make_market(offer), workload, policy.model_copy(update={"max_gang_nodes": 2}))
    assert [gang.nodes for gang in few.trainer] == [1, 2]


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
