"""Replan: plan, judge, remember. Every re-plan leaves an event that says why it came and what came of it."""

from dataclasses import replace

from hexcloud.controller.apply import Nodes, can_resize
from hexcloud.controller.budget import Purse, require_budget
from hexcloud.controller.hands import Hands
from hexcloud.controller.observe import Seen, fleet_state
from hexcloud.controller.remaining import policy_now
from hexcloud.controller.report import BASELINES, read_first_price
from hexcloud.controller.triggers import ListPrice, PriceShift, list_prices, price_shifts, unusable_offers
from hexcloud.domain.diff import Judgement
from hexcloud.domain.errors import PlanError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Columns, ExecutionPlan, Placement, PlanResult
from hexcloud.planner.anew import placement_anew
from hexcloud.planner.judge import Case, judge
from hexcloud.planner.partition import partition
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.worth import Worth

Accepted = tuple[ExecutionPlan, Placement]
_DOLLAR = "USD"
_SHIFTS_TOLD = 5
"""A market-wide step moves hundreds of offers; the events name the largest few."""


def triggers(hands: Hands) -> tuple[str, ...]:
    """Return why to re-plan now, each reason once; empty when there is none. A burst is one re-plan."""
    memory, seen = hands.memory, hands.seen
    reasons = list(memory.pending)
    memory.pending.clear()
    reasons += memory.requests.take_replans()
    blocked = frozenset(hands.ports.store.blocks(seen.run.id, seen.now_s))
    if memory.blocked - blocked:
        reasons.append("capacity")
    memory.blocked = blocked
    if seen.placement is None:
        return ("start",)
    if not memory.baseline:
        memory.baseline = _baseline(seen)
    if shifts := _shifts(hands):
        _tell(shifts, hands)
        reasons.append("price")
    return tuple(dict.fromkeys(reasons))


def replan(reasons: tuple[str, ...], nodes: Nodes, hands: Hands) -> Accepted:
    """Return the plan in force afterwards.

    Raises PlanError and BudgetError only before the first plan; afterwards the old plan is kept.
    """
    seen, memory = hands.seen, hands.memory
    fleet = fleet_state(
        replace(seen, nodes=tuple(nodes.values())), hands.ports.store.blocks(seen.run.id, seen.now_s), hands.ports
    )
    memory.baseline = list_prices(seen.market)
    try:
        policy = policy_now(seen, Purse(seen, hands.ports.timing, hands.ports.store.spent_usd(seen.run.id)))
        start = seen.accepted[0].allocation if seen.accepted else seen.run.agreed
        result = make_plan(seen.market, seen.run.workload, policy, fleet, start=start)
    except PlanError as error:
        if seen.accepted is None:
            raise
        _record(reasons, f"no plan: {error}", seen.accepted, hands)
        return seen.accepted
    memory.unusable = unusable_offers(result.rejections)
    if seen.accepted is None:
        _require_agreed_price(result.plan, hands)
        require_budget(result.plan, seen.market, seen.run, hands.ports.timing)
    judgement = _judge(result, fleet, nodes, hands)
    accepted = _accept(result.plan, judgement, fleet, seen)
    hands.ports.store.save_plan(seen.run.id, *accepted)
    if _names(accepted[1]) != _names(seen.placement):
        memory.placed_at = seen.wall_s
        memory.refused_slots.clear()
    reason = "; ".join(verdict.reason for verdict in judgement.verdicts) or "the fleet is what the plan wants"
    _record(reasons, reason, accepted, hands)
    return accepted


def _require_agreed_price(plan: ExecutionPlan, hands: Hands) -> None:
    """Raise PlanError when the first plan has become dearer than the one that the user said yes to."""
    run = hands.seen.run
    kept = [event for _, event in hands.ports.store.events(run.id) if event.kind == BASELINES]
    agreed = read_first_price(kept[-1]) if kept else None
    price = plan.allocation.usd_per_hour
    if agreed is not None and price > agreed * (1 + run.policy.price_hysteresis):
        moved = f"{agreed:.2f} -> {price:.2f} USD/h"
        raise PlanError(f"the market moved since you agreed: {moved}; nothing was rented, start again")


def _judge(result: PlanResult, fleet: FleetState, nodes: Nodes, hands: Hands) -> Judgement:
    seen = hands.seen
    case = Case(
        plan=result.plan,
        current=placement_anew(seen.placement, seen.market, seen.run.workload) if seen.placement else None,
        fleet=fleet,
        market=seen.market,
        workload=seen.run.workload,
        policy=seen.run.policy,
        now_s=seen.now_s,
        can_resize=can_resize(result.plan.placement, nodes, hands),
    )
    return judge(case)


def _accept(plan: ExecutionPlan, judgement: Judgement, fleet: FleetState, seen: Seen) -> Accepted:
    """Return plan and placement to store. What the judge approved in part gets ranks and routes of its own."""
    placement = judgement.placement
    if _names(placement) == _names(plan.placement):
        return plan, plan.placement
    listed = {offer.id for offer in seen.market.offers}
    if seen.accepted and (
        _names(placement) == _names(seen.placement) or any(slot.offer_id not in listed for slot in placement.slots)
    ):
        return seen.accepted[0], placement
    partitioned = partition(placement, plan.allocation, seen.market, seen.run.workload, fleet)
    return partitioned, partitioned.placement


def _record(reasons: tuple[str, ...], reason: str, accepted: Accepted, hands: Hands) -> None:
    seen, after = hands.seen, accepted[1]
    moved = _names(after) != _names(seen.placement)
    before_usd, after_usd = _bill(seen.placement, accepted, seen), _bill(after, accepted, seen)
    word = "moved" if moved else "stayed"
    hands.journal.say(
        "replan",
        f"{' + '.join(reasons)}: {word}, {before_usd:.2f} -> {after_usd:.2f} USD/h; {reason}",
        trigger="+".join(reasons),
        verdict=word,
        reason=reason,
        usd_per_hour_before=before_usd,
        usd_per_hour_after=after_usd,
    )


def _bill(placement: Placement | None, accepted: Accepted, seen: Seen) -> float:
    """Return rent and egress of a placement at today's prices and the plan's pace, USD per hour."""
    if placement is None:
        return 0.0
    columns = Columns(
        rollout=tuple(slot.rollout for slot in placement.slots if slot.rollout),
        trainer=tuple(slot.trainer for slot in placement.slots if slot.trainer),
    )
    problem = Problem(columns, seen.market, seen.run.workload, seen.run.policy, FleetState())
    return Worth(problem, accepted[0].forecast.samples_per_s).bill_usd_per_hour(placement.slots)


def _names(placement: Placement | None) -> frozenset[str]:
    return frozenset(slot.name for slot in placement.slots) if placement else frozenset()


def _baseline(seen: Seen) -> dict[OfferId, ListPrice]:
    """After a restart: what the plan in force was made for, and today's prices of all else.

    A plan remembers dollars, from which the list price in another currency cannot be told: today's stands in for it.
    """
    prices = list_prices(seen.market)
    for slot in seen.placement.slots if seen.placement else ():
        today = prices.get(slot.offer_id)
        if today is None or today.currency == _DOLLAR:
            prices[slot.offer_id] = ListPrice(slot.usd_per_hour, _DOLLAR)
    return prices


def _shifts(hands: Hands) -> tuple[PriceShift, ...]:
    seen, memory = hands.seen, hands.memory
    ours = frozenset(slot.offer_id for slot in seen.placement.slots) if seen.placement else frozenset()
    return price_shifts(memory.baseline, seen.market, ours, memory.unusable, seen.run.policy.price_hysteresis)


def _tell(shifts: tuple[PriceShift, ...], hands: Hands) -> None:
    largest = sorted(shifts, key=lambda shift: (not shift.is_ours, -abs(shift.after / shift.before - 1)))
    for shift in largest[:_SHIFTS_TOLD]:
        hands.journal.say(
            "price_shift",
            f"{shift} (one of {len(shifts)} that moved)" if len(shifts) > 1 else str(shift),
            offer=shift.offer_id,
            usd_per_hour_before=shift.before,
            usd_per_hour_after=shift.after,
            is_ours=shift.is_ours,
        )
