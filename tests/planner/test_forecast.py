from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import SlotName, WeightRoute
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.forecast import weight_sync_s
from hexcloud.planner.plan import make_plan

MakeOffer = Callable[..., Offer]
GB = 1e9


def route(source: str, target: str, gb_per_s: float) -> WeightRoute:
    return WeightRoute(source=SlotName(source), target=SlotName(target), gb_per_s=gb_per_s, crosses_region=False)


def test_a_slot_behind_another_has_its_copy_after_it(make_offer: MakeOffer) -> None:
    machines = {SlotName(name): make_offer() for name in ("head", "entry", "peer")}
    routes = (route("head", "entry", 1.0), route("entry", "peer", 5.0))
    assert weight_sync_s(routes, machines, 10 * GB) == pytest.approx(10.0 + 2.0)


def test_targets_of_one_source_share_its_network(make_offer: MakeOffer) -> None:
    machines = {SlotName(name): make_offer(network_gb_per_s=10.0) for name in ("head", "a", "b", "c", "d")}
    routes = tuple(route("head", name, 10.0) for name in "abcd")
    assert weight_sync_s(routes, machines, 10 * GB) == pytest.approx(4.0)


def test_nothing_to_feed_takes_no_time() -> None:
    assert weight_sync_s((), {}, GB) == 0.0


def test_rollout_that_outruns_the_trainer_makes_samples_as_old_as_admission_lets_them(
    market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    made = sum(slot.rollout.samples_per_s for slot in plan.placement.slots if slot.rollout)
    assert 0.0 < plan.forecast.staleness <= workload.eta
    if made > plan.allocation.trainer.column.samples_per_s:
        assert plan.forecast.staleness == workload.eta
