import gc
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState, Node, NodeStatus, RunId, node_id
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Placement, PlanResult
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.diff import diff
from hexcloud.planner.explain import rejected_counts
from hexcloud.planner.judge import Case, judge
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.worth import Worth

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]

GOLDEN = Path(__file__).parent / "golden"


def as_text(result: PlanResult) -> str:
    """A plan as a reviewer reads it."""
    plan, forecast = result.plan, result.plan.forecast
    lines = [
        f"{forecast.tokens_per_s:.0f} tok/s for {forecast.usd_per_hour:.2f} USD/h, step {forecast.step_s:.1f} s, "
        f"staleness {forecast.staleness:.1f}, weights there in {forecast.weight_sync_s:.1f} s",
        "",
    ]
    for slot in plan.placement.slots:
        column = slot.rollout or slot.trainer
        assert column is not None
        lines.append(f"{slot.name:10} {slot.offer_id:36} {slot.usd_per_hour:6.2f} USD/h {column.samples_per_s:6.2f}/s")
    lines.append("")
    lines += [
        f"{route.source} -> {route.target} {route.gb_per_s:g} GB/s{' crosses' if route.crosses_region else ''}"
        for route in plan.routes
    ]
    lines += ["", *(f"{count} {rule}" for rule, count in rejected_counts(result.rejections).items())]
    return "\n".join(lines) + "\n"


def check_golden(name: str, result: PlanResult) -> None:
    """Compare with the checked-in plan; GOLDEN=write makes it anew, for a reviewer to read as a diff."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(as_text(result))
    assert as_text(result) == path.read_text()


WISHES: dict[str, dict[str, object]] = {
    "cheapest": {},
    "no_spot": {"max_spot_share": 0.0},
    "survives_a_zone": {"survival_share": 0.5},
    "fastest_for_40_usd": {
        "objective": Objective.MAX_THROUGHPUT,
        "target_samples_per_s": None,
        "max_usd_per_hour": 40.0,
    },
    "spot_trainer": {"spot_trainer": True},
}


@pytest.mark.parametrize("name", WISHES)
def test_golden_plans_do_not_change_unseen(name: str, market: Market, workload: Workload, policy: Policy) -> None:
    wishes = policy.model_copy(update=WISHES[name])
    check_golden(name, make_plan(market, workload, wishes, FleetState()))


def running(placement: Placement, next_slot: int | None = None) -> FleetState:
    nodes = tuple(
        Node(
            id=node_id(RunId("main"), slot.name, 0),
            run_id=RunId("main"),
            slot=slot.name,
            attempt=0,
            role=slot.role,
            offer_id=slot.offer_id,
            status=NodeStatus.READY,
            requested_at_s=0.0,
            ready_at_s=300.0,
        )
        for slot in placement.slots
    )
    return FleetState(nodes=nodes, next_slot=len(nodes) if next_slot is None else next_slot)


def test_the_same_market_gives_the_same_plan(market: Market, workload: Workload, policy: Policy) -> None:
    assert make_plan(market, workload, policy, FleetState()) == make_plan(market, workload, policy, FleetState())


def test_a_plan_for_the_fleet_it_made_changes_nothing(market: Market, workload: Workload, policy: Policy) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    fleet = running(plan.placement)
    again = make_plan(market, workload, policy, fleet).plan
    assert diff(again.placement, fleet).is_empty
    assert again.placement == plan.placement
    assert again.allocation.one_off_usd_per_hour == 0.0


def test_every_offer_is_in_the_plan_or_told_why_not(market: Market, workload: Workload, policy: Policy) -> None:
    wishes = policy.model_copy(update={"regions": ("us-one",)})
    result = make_plan(market, workload, wishes, FleetState())
    told = [rejection.offer_id for rejection in result.rejections]
    used = {slot.offer_id for slot in result.plan.placement.slots}
    assert sorted({*told, *used}) == [offer.id for offer in market.offers]
    assert len(told) + len(used) == len(market.offers)


def test_a_plan_keeps_its_promises(market: Market, workload: Workload, policy: Policy) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    assert policy.target_samples_per_s is not None
    assert plan.forecast.samples_per_s >= policy.target_samples_per_s * (1 - 1e-6)
    assert plan.forecast.staleness <= workload.eta
    assert plan.placement.usd_per_hour == pytest.approx(plan.allocation.rent_usd_per_hour)
    assert {route.target for route in plan.routes} | set(plan.ranks) == {slot.name for slot in plan.placement.slots}


def test_an_empty_market_is_infeasible_and_says_so(make_market: MakeMarket, workload: Workload, policy: Policy) -> None:
    with pytest.raises(InfeasibleError):
        make_plan(make_market(), workload, policy, FleetState())


def test_a_pool_that_refused_us_is_planned_around_and_what_runs_there_stays(
    market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    first = plan.placement.slots[0]
    shut = FleetState(sold_out={first.offer_id: "no capacity"})
    around = make_plan(market, workload, policy, shut).plan
    assert first.offer_id not in {slot.offer_id for slot in around.placement.slots}
    kept = make_plan(
        market, workload, policy, running(plan.placement).model_copy(update={"sold_out": shut.sold_out})
    ).plan
    assert kept.placement == plan.placement


def test_spot_rollout_is_bought_when_it_is_cheap(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(
        make_offer("big8", 20.0), make_offer("lean8", 10.0), make_offer("lean8", 4.0, tenure=Tenure.SPOT)
    )
    plan = make_plan(market, workload, policy, FleetState()).plan
    assert {slot.offer_id for slot in plan.placement.slots if slot.rollout} == {"acme/us-one/a/lean8/spot"}


def case(market: Market, workload: Workload, policy: Policy, current: Placement, fleet: FleetState) -> Case:
    """A day later the same is planned again."""
    plan = make_plan(market, workload, policy, fleet).plan
    return Case(
        plan=plan, current=current, fleet=fleet, market=market, workload=workload, policy=policy, now_s=86_400.0
    )


@pytest.mark.parametrize("name", WISHES)
def test_when_no_price_changes_nothing_moves(name: str, market: Market, workload: Workload, policy: Policy) -> None:
    wishes = policy.model_copy(update=WISHES[name])
    placement = make_plan(market, workload, wishes, FleetState()).plan.placement
    judgement = judge(case(market, workload, wishes, placement, running(placement)))
    assert not any(verdict.approved for verdict in judgement.verdicts)
    assert judgement.placement == placement


@given(factors=st.lists(st.floats(0.4, 3.0), min_size=10, max_size=10), lost=st.integers(0, 7))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replanning_at_new_prices_settles_and_never_costs_more(
    market: Market, workload: Workload, policy: Policy, factors: list[float], lost: int
) -> None:
    """One machine is lost and every price changes once; then each turn plans, judges and does what was approved.

    A move may rent dearer machines to save more egress, so both count.
    """
    wishes = policy.model_copy(update={"survival_share": 0.3})
    placement = make_plan(market, workload, wishes, FleetState()).plan.placement
    offers = zip(market.offers, factors, strict=True)
    changed = market.model_copy(
        update={
            "offers": tuple(
                offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * factor}) for offer, factor in offers
            )
        }
    )
    fleet = running(placement)
    gone = fleet.nodes[lost % len(fleet.nodes)]
    fleet = fleet.model_copy(update={"nodes": tuple(node for node in fleet.nodes if node != gone)})
    columns, _ = build_columns(changed.offers, changed, workload, wishes)
    worth = Worth(Problem(columns, changed, workload, wishes, FleetState()), wishes.target_samples_per_s or 0.0)
    costs: list[float] = []
    for turn in range(8):
        judgement = judge(case(changed, workload, wishes, placement, fleet))
        placement = judgement.placement
        made = sum(slot.rollout.samples_per_s for slot in placement.slots if slot.rollout)
        assert made >= (wishes.target_samples_per_s or 0.0)
        if turn and not any(verdict.approved for verdict in judgement.verdicts):
            break
        launched = diff(placement, fleet).launches
        fleet = running(placement, fleet.next_slot + len(launched))
        costs.append(worth.usd_per_hour(placement.slots))
    else:
        pytest.fail("eight turns and still moving")
    assert all(later <= sooner + 1e-6 for sooner, later in pairwise(costs))


@pytest.mark.parametrize("was_on", [True, False])
def test_the_search_for_cycles_is_as_it_was_after_a_plan_and_after_a_refusal(
    market: Market, workload: Workload, policy: Policy, was_on: bool
) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        make_plan(market, workload, policy, FleetState())
        assert gc.isenabled() is was_on
        with pytest.raises(InfeasibleError):
            make_plan(market, workload, policy.model_copy(update={"target_samples_per_s": 1e6}), FleetState())
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


def test_all_that_a_plan_leaves_to_that_search_is_the_graph_of_its_slots(
    market: Market, workload: Workload, policy: Policy
) -> None:
    was_on = gc.isenabled()
    gc.disable()
    try:
        make_plan(market, workload, policy, FleetState())
        gc.collect()
        slots = make_plan(market, workload, policy, FleetState()).plan.placement.slots
        assert gc.collect() <= len(slots) + 10
    finally:
        (gc.enable if was_on else gc.disable)()
