"""explain: why an offer is not in the plan and what would bring it in, and rule names as sentences."""

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.rollout import reload_s
from hexcloud.planner.allocate import allocate
from hexcloud.planner.clash import clashing_rules
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import SERIAL_SHARE, Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import Found, cheapest

_GAP = 1e-4
"""Relative; finer than a plan's own, since the answer is a difference of two plans."""

_WORDS = {
    "rollout_rate": "rollout must make the target",
    "train_rate": "the trainer gang must train the target",
    "one_gang": "one gang of equal machines in one zone must train",
    "stock": "no more machines of {} can be had",
    "quota": "the account's quota {} is used up",
    "hourly_budget": "the plan may not cost more per hour",
    "spot_share": "no more of the rollout may be on spot",
    "pools": "the plan may not use more different offers",
    "reward_cpu": "the rollout machines' CPUs must keep up with the rewards",
    "in_flight": "admission lets no more samples be in flight: (eta + 1) * samples per step",
    "staleness_reach": "samples would be older than eta when they are trained",
    "survive": "enough rollout must remain when {} is lost",
    "require": "the plan must hold {}",
}


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
    """The price of one machine at which that plan costs no more; None when no price above 0 would do."""


def why_not(
    pattern: str, market: Market, workload: Workload, policy: Policy, fleet: FleetState | None = None
) -> WhyNot:
    """Explain the cheapest usable offer whose id or instance type matches a name or glob, else the cheapest one.

    Raises InfeasibleError when there is no plan to compare with.
    """
    fleet = fleet or FleetState()
    matching = _matching(pattern, market)
    if not matching:
        reason = f"the market lists no offer like {pattern}; try an instance type, an offer id, or a glob such as aws/*"
        return WhyNot(pattern=pattern, matches=0, kind=WhyNotKind.UNKNOWN, reason=reason)
    screened = screen(market, workload, policy, fleet)
    columns, unusable = build_columns(screened.offers, market, workload, policy)
    refusals = {rejection.offer_id: rejection for rejection in (*screened.rejections, *unusable)}
    offer = next((one for one in matching if one.id not in refusals), matching[0])
    if offer.id in refusals:
        refusal = refusals[offer.id]
        about = _about(pattern, matching, offer)
        return about.model_copy(update={"rule": refusal.rule, "reason": f"{offer.id}: {refusal.reason}"})
    allocation = allocate(columns, market, workload, policy, fleet)
    chosen = _count_by_offer(allocation)
    held = next((one for one in matching if one.id in chosen), None)
    if held is not None:
        reason = f"{held.id} is in the plan: {chosen[held.id]} at {held.usd_per_hour:.2f} USD/h each"
        about = _about(pattern, matching, held)
        return about.model_copy(update={"kind": WhyNotKind.CHOSEN, "reason": reason})
    problem = Problem(columns, market, workload, policy, fleet)
    return _compare(_about(pattern, matching, offer), offer, problem, allocation.samples_per_s)


def _matching(pattern: str, market: Market) -> list[Offer]:
    """Return the offers whose id or instance type matches, cheapest first."""
    wanted = pattern.lower()
    found = [
        offer
        for offer in market.offers
        if any(fnmatchcase(name.lower(), wanted) for name in (offer.id, offer.instance_type))
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


def _compare(about: WhyNot, offer: Offer, problem: Problem, samples_per_s: float) -> WhyNot:
    """Solve again with at least one machine of the offer, at the plan's throughput, and weigh the two."""
    barrier = _barrier(problem, offer, samples_per_s)
    if barrier is not None:
        return _impossible(about, *barrier)
    free = replace(problem, policy=problem.policy.model_copy(update={"max_usd_per_hour": None}))
    bound = replace(free, require=offer.id)
    best, forced = cheapest(free, samples_per_s, _GAP), cheapest(bound, samples_per_s, _GAP)
    if best is None or forced is None:
        rules = clashing_rules(bound, samples_per_s)
        words = "; ".join(rule_in_words(rule) for rule in rules) or "whole machines of it do not fit with the others"
        return _impossible(about, rules[0] if rules else "", words)
    extra = max(0.0, forced.solution.objective - best.solution.objective)
    enters_at = offer.usd_per_hour - extra / _machines(forced, offer.id)
    how = f"it would come in at {enters_at:.2f} USD/h" if enters_at > 0 else "it would not come in at any price above 0"
    return about.model_copy(
        update={
            "kind": WhyNotKind.TOO_DEAR,
            "rule": "price",
            "reason": f"{offer.id} at {offer.usd_per_hour:.2f} USD/h: plans with it cost {extra:.2f} USD/h more; {how}",
            "extra_usd_per_hour": extra,
            "enters_at_usd_per_hour": enters_at if enters_at > 0 else None,
        }
    )


def _barrier(problem: Problem, offer: Offer, samples_per_s: float) -> tuple[str, str] | None:
    """Return the rule and its words that bar an offer from both roles at this throughput whatever it costs, or None."""
    gangs = [gang for gang in problem.gangs if gang.offer_id == offer.id]
    columns = [column for column in problem.rollout if column.offer_id == offer.id]
    trains = any(gang.samples_per_s * problem.duty >= samples_per_s for gang in gangs)
    if trains or any(problem.is_young_enough(column, 0.0, samples_per_s) for column in columns):
        return None
    if not columns:
        return "train_rate", "its GPUs hold no rollout replica and its gangs train too slowly"
    workload, quickest = problem.workload, min(columns, key=lambda column: column.generation_s)
    age_s = quickest.generation_s + reload_s(workload, quickest.tp)
    pace = workload.samples_per_step * (workload.eta or SERIAL_SHARE) / age_s
    return "staleness_reach", (
        f"its samples take {quickest.generation_s:.0f} s (p95), so at the plan's pace they would be over eta = "
        f"{workload.eta} versions old (it could roll out at up to {pace * workload.tokens_per_sample:.0f} tok/s); "
        "and its gangs train too slowly"
    )


def _impossible(about: WhyNot, rule: str, words: str) -> WhyNot:
    reason = f"no plan can hold {about.offer_id}, at any price: {words}"
    return about.model_copy(update={"kind": WhyNotKind.IMPOSSIBLE, "rule": rule, "reason": reason})


def rule_in_words(name: str) -> str:
    """Return what a named rule of the MILP demands; the name itself when it is not known."""
    rule, _, rest = name.partition("[")
    return _WORDS.get(rule, name).format(rest.removesuffix("]"))


def binding_in_words(allocation: Allocation) -> tuple[str, ...]:
    """Return what kept the plan from being better: each rule at its limit, in words."""
    return tuple(rule_in_words(name) for name in allocation.proof.binding)


def rejected_counts(rejections: tuple[Rejection, ...]) -> dict[str, int]:
    """Return how many offers each rule turned away, most first."""
    return dict(sorted(Counter(rejection.rule for rejection in rejections).items(), key=lambda row: (-row[1], row[0])))


def _count_by_offer(allocation: Allocation) -> Counter[OfferId]:
    counts = Counter({allocation.trainer.column.offer_id: allocation.trainer.column.nodes})
    for share in allocation.rollout:
        counts[share.column.offer_id] += share.count
    return counts


def _machines(found: Found, offer_id: OfferId) -> int:
    """Return how many machines of an offer a solution holds."""
    rules, solution = found.rules, found.solution
    rollout = sum(solution.count(count) for column, count in rules.rollout if column.offer_id == offer_id)
    return rollout + sum(gang.nodes * solution.count(one) for gang, one in rules.gangs if gang.offer_id == offer_id)
