"""explain: why an offer is not in the plan and what would bring it in, and rule names as sentences."""

import math
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import allocate
from hexcloud.planner.clash import clashing_rules
from hexcloud.planner.columns import build_columns
from hexcloud.planner.entry import ALMOST_FREE, MARGIN, Entry, entry
from hexcloud.planner.granted import granted
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.words import rule_in_words

__all__ = [
    "WhyNot",
    "WhyNotKind",
    "binding_in_words",
    "matching_offers",
    "notable_gpus",
    "rejected_counts",
    "rule_in_words",
    "why_not",
]

_HALVINGS = 12
"""Of the range of throughputs: a few thousandths of it."""


class WhyNotKind(StrEnum):
    """What became of an offer."""

    UNKNOWN = "unknown"
    """The market lists nothing of that name."""
    CHOSEN = "chosen"
    """It is in the plan."""
    REFUSED = "refused"
    """A rule screened it out before the solver."""
    IMPOSSIBLE = "impossible"
    """No plan can hold it."""
    TOO_DEAR = "too_dear"
    """Plans with it cost more."""


class WhyNot(Frozen):
    """Why the cheapest offer that matches a pattern is not in the plan."""

    pattern: str
    matches: int
    kind: WhyNotKind
    reason: str
    offer_id: OfferId | None = None
    rule: str = ""
    """The rule that keeps it out."""
    usd_per_hour: float | None = None
    """Its price today."""
    extra_usd_per_hour: float | None = None
    """How much more the cheapest plan with at least one of it costs."""
    enters_at_usd_per_hour: float | None = None
    """The price of one machine that brings it in for certain, though a plan may miss the best by its gap (see `entry`).

    None when no price above 0 would do.
    """


def why_not(
    pattern: str, market: Market, workload: Workload, policy: Policy, fleet: FleetState | None = None
) -> WhyNot:
    """Explain the offers whose id, instance type or GPU matches a name or glob: the one that comes nearest to being in.

    Raises InfeasibleError when there is no plan to compare with.
    """
    fleet = fleet or FleetState()
    matching = matching_offers(pattern, market)
    if not matching:
        reason = (
            f"the market lists no offer like {pattern}; try a GPU, an instance type, an id, or a glob such as aws/*"
        )
        return WhyNot(pattern=pattern, matches=0, kind=WhyNotKind.UNKNOWN, reason=reason)
    screened = screen(market, workload, policy, fleet)
    columns, unusable = build_columns(screened.offers, market, workload, policy)
    refusals = {rejection.offer_id: rejection for rejection in (*screened.rejections, *unusable)}
    usable = [one for one in matching if one.id not in refusals]
    if not usable:
        refusal = refusals[matching[0].id]
        about = _about(pattern, matching, matching[0])
        return about.model_copy(update={"rule": refusal.rule, "reason": f"{matching[0].id}: {refusal.reason}"})
    allocation = allocate(columns, market, workload, policy, fleet)
    chosen = _count_by_offer(allocation)
    held = next((one for one in usable if one.id in chosen), None)
    if held is not None:
        reason = f"{held.id} is in the plan: {chosen[held.id]} at {held.usd_per_hour:.2f} USD/h each"
        about = _about(pattern, matching, held)
        return about.model_copy(update={"kind": WhyNotKind.CHOSEN, "reason": reason})
    problem = Problem(columns, market, workload, policy, fleet)
    return _compare(_about(pattern, matching, usable[0]), usable, problem, allocation)


def matching_offers(pattern: str, market: Market) -> list[Offer]:
    """Return the offers whose id, instance type or GPU matches a name or glob, cheapest first."""
    wanted = pattern.lower()
    found = [
        offer
        for offer in market.offers
        if any(fnmatchcase(name.lower(), wanted) for name in (offer.id, offer.instance_type, offer.gpu))
    ]
    return sorted(found, key=lambda offer: (offer.usd_per_hour, offer.id))


def _about(pattern: str, matching: list[Offer], offer: Offer) -> WhyNot:
    return WhyNot(
        pattern=pattern,
        matches=len(matching),
        kind=WhyNotKind.REFUSED,
        reason="",
        offer_id=offer.id,
        usd_per_hour=offer.usd_per_hour,
    )


def _compare(about: WhyNot, usable: list[Offer], problem: Problem, plan: Allocation) -> WhyNot:
    """Solve again with at least one machine of the offers, at the plan's throughput, and weigh the two."""
    able = [offer for offer in usable if _has_role(problem, offer, plan.samples_per_s)]
    there = entry(problem, (offer.id for offer in able), plan.samples_per_s) if able else None
    found = granted(problem, [offer.id for offer in usable], plan, there)
    if found is None:
        return _no_plan(about, able, problem, plan) if able else _too_slow(about, usable, problem)
    offer = problem.offers[found.offer_id]
    return about.model_copy(
        update={
            "kind": WhyNotKind.TOO_DEAR,
            "offer_id": offer.id,
            "usd_per_hour": offer.usd_per_hour,
            "rule": "price",
            "reason": f"{offer.id} at {offer.usd_per_hour:.2f} USD/h: {_extra(found, problem)}; {_way_in(found)}",
            "extra_usd_per_hour": found.extra_usd_per_hour,
            "enters_at_usd_per_hour": found.enters_at_usd_per_hour,
        }
    )


def _no_plan(about: WhyNot, able: list[Offer], problem: Problem, plan: Allocation) -> WhyNot:
    """Say which rules keep every plan of that throughput from holding one of the offers."""
    required = replace(problem, require=frozenset(offer.id for offer in able))
    # That it must hold one of them is what was asked, and no rule that anybody could change.
    rules = [rule for rule in clashing_rules(required, plan.samples_per_s) if rule != "require"]
    words = "; ".join(rule_in_words(rule) for rule in rules) or "whole machines of it do not fit with the others"
    return _impossible(about, rules[0] if rules else "", words, problem.policy.objective)


def _extra(found: Entry, problem: Problem) -> str:
    """Say what plans with the offer cost beyond the best one."""
    at = "" if problem.policy.objective is Objective.MIN_COST else "at today's throughput "
    if found.extra_usd_per_hour is None:
        return f"{at}no plan can hold it"
    if found.is_tie:
        return f"{at}plans with it cost as much, within the {MARGIN:.1%} that a plan may miss the best by"
    return f"{at}plans with it cost {found.extra_usd_per_hour:.2f} USD/h more"


def _way_in(found: Entry) -> str:
    if found.enters_at_usd_per_hour is None:
        return (
            f"it would not come in for next to nothing either ({ALMOST_FREE:.1%} of its price), as the machines and "
            "copies of weights it needs beside it cost more"
        )
    told = f"it would come in at {_rounded_down(found.enters_at_usd_per_hour)} USD/h"
    if found.is_asked:
        return f"{told}: made again with that price, the plan holds it (a little more may do)"
    without = f"where a plan with it costs {MARGIN:.1%} less than any without"
    return f"{told}, {without}" + ("" if found.is_tie else " (a plan may miss the best by that)")


def _rounded_down(usd_per_hour: float) -> str:
    """Return a price to a hundredth of a cent, never over it: granted as it is read, it brings the offer in."""
    return f"{math.floor(usd_per_hour * 1e4) / 1e4:.4f}"


def _has_role(problem: Problem, offer: Offer, samples_per_s: float) -> bool:
    """Could an offer train at this throughput, or roll out beside a trainer, whatever it costs?"""
    gangs = (gang for gang in problem.kinds.gangs_of(offer.id) if gang.nodes <= problem.stock[offer.id])
    trains = any(gang.samples_per_s * problem.duty >= samples_per_s for gang in gangs)
    columns = (one for one in problem.kinds.rollout_of(offer.id) if one.nodes <= problem.stock[offer.id])
    return trains or any(problem.is_young_enough(column, 0.0, samples_per_s) for column in columns)


def _too_slow(about: WhyNot, usable: list[Offer], problem: Problem) -> WhyNot:
    """Say up to which throughput offers could take part that can do neither job at the plan's, and at which price."""
    kinds = {(offer.gpu, offer.gpu_count, offer.network_gb_per_s): offer for offer in usable}
    most = max(_fastest_pace(offer, problem) for offer in kinds.values())
    words = "its gangs train too slowly and its samples would be over eta versions old before they are trained"
    if most <= 0:
        return _impossible(about, "staleness_reach", words, problem.policy.objective)
    tokens = problem.workload.tokens_per_sample
    words += f"; it could take part at up to {most * tokens:.0f} tok/s"
    half = problem.policy.model_copy(update={"objective": Objective.MIN_COST, "target_samples_per_s": most / 2})
    columns, _ = build_columns(tuple(problem.offers.values()), problem.market, problem.workload, half)
    there = Problem(columns, problem.market, problem.workload, half, problem.fleet)
    found = entry(there, (offer.id for offer in usable if _has_role(there, offer, most / 2)), most / 2)
    if found is not None:
        words += f", and at {most / 2 * tokens:.0f} tok/s {_way_in(found)}"
    return _impossible(about, "staleness_reach", words, problem.policy.objective)


def _fastest_pace(offer: Offer, problem: Problem) -> float:
    """Return the most samples/s at which an offer could roll out beside a trainer, to a hundredth; 0 for never."""
    low, high = 0.0, max((gang.samples_per_s for gang in problem.gangs), default=0.0)
    for _ in range(_HALVINGS):  # a dozen replicas are estimated each time, so this takes milliseconds
        pace = (low + high) / 2
        policy = problem.policy.model_copy(update={"target_samples_per_s": pace})
        columns, _ = build_columns((offer,), problem.market, problem.workload, policy)
        trial = replace(problem, columns=columns)
        is_able = any(trial.is_young_enough(column, 0.0, pace) for column in columns.rollout)
        low, high = (pace, high) if is_able else (low, pace)
    return low


def _impossible(about: WhyNot, rule: str, words: str, objective: Objective) -> WhyNot:
    plans, more = {
        Objective.MIN_COST: ("no plan", ""),
        Objective.MAX_THROUGHPUT: ("no plan as fast", ""),
        Objective.BUDGET_RUN: ("no plan of this throughput", ", and at no other would it come in for next to nothing"),
    }[objective]
    reason = f"{plans} can hold {about.offer_id}, at any price{more}: {words}"
    return about.model_copy(update={"kind": WhyNotKind.IMPOSSIBLE, "rule": rule, "reason": reason})


def binding_in_words(allocation: Allocation) -> tuple[str, ...]:
    """Return what kept the plan from being better: each rule at its limit, in words."""
    return tuple(rule_in_words(name) for name in allocation.proof.binding)


def notable_gpus(market: Market, allocation: Allocation) -> tuple[str, ...]:
    """Return GPU types that the plan leaves out, the cheapest memory bandwidth first, as that is what rollout lives on.

    Types of which no offer can be used at all (too old, not proven) come with the others: `why_not` says so.
    """
    held = _count_by_offer(allocation)
    offers = [offer for offer in market.offers if offer.proven]
    taken = {offer.gpu for offer in offers if offer.id in held}
    best: dict[str, float] = {}
    for offer in offers:
        usd_per_gb_per_s = offer.usd_per_gpu_hour / market.gpus[offer.gpu].hbm_gb_per_s
        best[offer.gpu] = min(usd_per_gb_per_s, best.get(offer.gpu, usd_per_gb_per_s))
    return tuple(sorted(best.keys() - taken, key=lambda gpu: (best[gpu], gpu)))


def rejected_counts(rejections: tuple[Rejection, ...]) -> dict[str, int]:
    """Return how many offers each rule turned away, most first."""
    return dict(sorted(Counter(rejection.rule for rejection in rejections).items(), key=lambda row: (-row[1], row[0])))


def _count_by_offer(allocation: Allocation) -> Counter[OfferId]:
    counts = Counter({allocation.trainer.column.offer_id: allocation.trainer.column.nodes})
    for share in allocation.rollout:
        counts[share.column.offer_id] += share.machines
    return counts
