"""Offers without a place in any plan say why, and what would give them one."""

from collections.abc import Callable

import pytest

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.plan import make_plan
from hexcloud.planner.screen import screen
from hexcloud.planner.spans import Spans
from hexcloud.planner.unfit import has_disk, too_few, unfit
from tests.planner.oracle import LARGE

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


@pytest.fixture
def large(workload: Workload) -> Workload:
    return workload.model_copy(update={"model": LARGE, "spans": (2, 4)})


@pytest.fixture
def huge(large: Workload) -> Workload:
    """Of which a trainer keeps more than the largest disk of AWS, and a rollout node does not."""
    return large.model_copy(update={"model": LARGE.model_copy(update={"params": 5 * LARGE.params})})


def test_unproven_capacity_makes_no_replica_and_says_so(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload, fleet: FleetState
) -> None:
    """One machine is tried at most, and one is no replica: nothing of it is planned."""
    market = make_market(make_offer("big1", 0.1, stock=8, proven=False), make_offer("lean8", 30.0, stock=4))
    wishes = Policy(target_samples_per_s=0.05, survival_share=0.0, try_unproven=True)
    made = make_plan(market, large, wishes, fleet)
    assert {slot.offer_id for slot in made.plan.placement.slots} == {market.offers[1].id}
    (refusal,) = (one for one in made.rejections if one.offer_id == market.offers[0].id)
    assert refusal.rule == "stock"
    assert "at least 2 machines together" in refusal.reason and "one is tried at most" in refusal.reason
    assert "run with a smaller model" in refusal.reason, "and how it comes to be believed"


def test_too_few_of_a_proven_offer_are_counted(make_offer: MakeOffer, large: Workload) -> None:
    offer = make_offer("big1")
    assert too_few(offer, 4, 2, Policy(), large).reason.endswith("takes at least 4 machines, 2 can be had")
    shy = Policy(max_nodes_per_pool=2)
    assert "the policy allows 2 of an offer (max_nodes_per_pool)" in too_few(offer, 4, 2, shy, large).reason


def test_a_cloud_whose_disks_are_too_small_for_a_trainer_trains_nothing_and_may_roll_out(
    make_offer: MakeOffer, make_market: MakeMarket, huge: Workload, policy: Policy
) -> None:
    assert has_disk(Role.ROLLOUT, "aws", huge) and not has_disk(Role.TRAINER, "aws", huge)
    assert has_disk(Role.TRAINER, "gcp", huge) and has_disk(Role.TRAINER, "lambda", huge)
    here, there = (make_offer("big8", stock=64, cloud=cloud) for cloud in ("aws", "gcp"))
    wide = policy.model_copy(update={"max_gang_nodes": 64})
    columns, _ = build_columns((here, there), make_market(here, there), huge, wide)
    assert list(columns.rollout_of(here.id)) and not list(columns.gangs_of(here.id))
    assert list(columns.gangs_of(there.id))


def test_what_fits_no_disk_is_refused_before_anything_is_rented(
    make_offer: MakeOffer, make_market: MakeMarket, huge: Workload, fleet: FleetState
) -> None:
    wishes = Policy(target_samples_per_s=0.001, survival_share=0.0, max_gang_nodes=64, max_nodes_per_pool=99)
    assert make_plan(make_market(make_offer("big8", stock=99, cloud="gcp")), huge, wishes, fleet).plan.placement.slots
    market = make_market(make_offer("big8", stock=99, cloud="aws"))
    with pytest.raises(InfeasibleError):
        make_plan(market, huge, wishes, fleet)
    vast = huge.model_copy(update={"model": LARGE.model_copy(update={"params": 30 * LARGE.params}), "spans": (64,)})
    _, (refusal,) = build_columns(market.offers, market, vast, Policy(target_samples_per_s=0.001))
    assert refusal.rule == "disk" and "GiB on its disk, and aws gives a machine 16384 at most" in refusal.reason


def test_gpus_that_cannot_share_a_layer_are_told_apart_from_small_ones(
    make_offer: MakeOffer, make_market: MakeMarket, large: Workload
) -> None:
    market = make_market(make_offer("big1", gpu_count=3))
    refusal = unfit(market.offers[0], market, large, Spans(market, large))
    assert refusal.rule == "memory" and "6 or 12 GPUs of several machines cannot share a layer" in refusal.reason


@pytest.mark.parametrize(
    ("spans", "beside", "mend"),
    [
        ((), (), "; 8 machines do, where the engine runs over several (engine: sglang)"),
        ((2, 4), ("big8",), "; machines with more BIG hold them"),
    ],
)
def test_a_machine_that_is_too_small_alone_says_what_would_help(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    large: Workload,
    fleet: FleetState,
    spans: tuple[int, ...],
    beside: tuple[str, ...],
    mend: str,
) -> None:
    market = make_market(make_offer("big1"), *(make_offer(name) for name in beside))
    refusals = screen(market, large.model_copy(update={"spans": spans}), Policy(), fleet).rejections
    (reason,) = (one.reason for one in refusals if one.offer_id == market.offers[0].id)
    assert reason.endswith(mend)
