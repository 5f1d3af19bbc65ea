"""Slots that stay are worth what today's calibration says of them, or a slow fleet would never be mended."""

import pytest

from hexcloud.domain.calibration import Factor, Phase
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Placement
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.anew import placement_anew
from hexcloud.planner.plan import make_plan


@pytest.fixture
def planned(market: Market, workload: Workload) -> Placement:
    return make_plan(market, workload, Policy(target_samples_per_s=5.0), FleetState()).plan.placement


def slower(market: Market, gpu: str, speed: float) -> Market:
    factor = Factor(gpu=gpu, phase=Phase.ROLLOUT, speed=speed, source="a test")
    return market.model_copy(update={"calibration": market.calibration.with_factors((factor,))})


def test_with_the_calibration_it_was_planned_by_a_placement_stays_as_it_is(
    planned: Placement, market: Market, workload: Workload
) -> None:
    assert placement_anew(planned, market, workload) == planned


def test_slots_of_a_slower_gpu_make_less_and_take_longer_and_all_else_stays(
    planned: Placement, market: Market, workload: Workload
) -> None:
    slot = next(slot for slot in planned.slots if slot.rollout)
    offer = market.offer(slot.offer_id)
    assert offer
    new = placement_anew(planned, slower(market, offer.gpu, 0.5), workload)
    for before, after in zip(planned.slots, new.slots, strict=True):
        other = market.offer(before.offer_id)
        if before.rollout is None or other is None or other.gpu != offer.gpu:
            assert after == before
            continue
        assert after.rollout
        assert after.rollout.samples_per_s == pytest.approx(before.rollout.samples_per_s / 2)
        assert after.rollout.generation_s == pytest.approx(before.rollout.generation_s * 2)
        same = {"samples_per_s": before.rollout.samples_per_s, "generation_s": before.rollout.generation_s}
        assert after.rollout.model_copy(update=same) == before.rollout


def test_a_slot_whose_offer_is_listed_no_more_stays_as_it_was_planned(
    planned: Placement, market: Market, workload: Workload
) -> None:
    empty = market.model_copy(update={"offers": ()})
    assert placement_anew(planned, empty, workload) == planned
