"""fastest: the largest throughput any plan can make: a throughput with a plan under one without, closer and closer.

Dearer egress, fewer columns in reach and longer pauses make everything harder as throughput grows, never easier: where
there is no plan there is none beyond. A plan that is found is stretched to the most its machines make, and the next try
is a little over that: when it fails, that is the proof.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hexcloud.domain.offer import Offer, place_of
from hexcloud.domain.plan import Columns, TrainerColumn
from hexcloud.planner.gangs import Ranked, Site
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice
from hexcloud.planner.search import (
    FEW,
    Found,
    Held,
    Trial,
    at_site,
    cap_usd_per_hour,
    cheapest,
    held_in,
    raised,
    solved,
    trial_at,
)
from hexcloud.planner.useful import Useful

_LEAST_SHARE = 1e-6
"""Of the fastest gang: slower runs are none."""
_HALVINGS = 20
"""Of the first bound, which only has to be of the right size."""
_HOPES = 3
"""Sites at which a fast plan of few columns is tried before all are."""
_FINE = 0.05
"""Share of the width to which it is known what a fleet makes."""
_HAIR = 1e-9
_TOLERANCE = 1e-8
"""The solver takes a row for kept that is missed by less; what is planned is to be kept by every model of it."""


def fastest(
    problem: Problem, width: float, below: float = INFINITY, start: Held | None = None
) -> tuple[Found | None, float]:
    """Return the cheapest allocation at the largest feasible throughput, and a throughput that no plan can exceed.

    `below` is a throughput known to be out of reach, `start` a plan that was good before. The two are within the
    relative `width`. None when not even a millionth of the fastest gang is feasible. Raises SolverStoppedError.
    """
    ceiling = min(below, _first_ceiling(problem))
    least = ceiling * _LEAST_SHARE
    best = None if start is None else _stretched(problem, start, (0.0, ceiling), width)
    low = ceiling / 2.0 if best is None else min(best.samples_per_s * (1.0 + width), ceiling)
    while low > least and ceiling - _made(best) > width * ceiling:
        found = _between(problem, low, ceiling, width)
        is_leap = _made(found) > _made(best) * (1.0 + width)
        if found is None:
            ceiling = low
        best = max(best, found, key=_made)
        between = (_made(best) + ceiling) / 2.0
        low = min(_made(best) * (1.0 + width), between) if is_leap else between
    return (None if best is None else cheapest(problem, best.samples_per_s, width, best.held)), ceiling


class Stretched(NamedTuple):
    """Machines and the most they make with every rule kept."""

    held: Held
    samples_per_s: float


def _made(plan: Stretched | None) -> float:
    return 0.0 if plan is None else plan.samples_per_s


def _first_ceiling(problem: Problem) -> float:
    """Return a throughput that no plan exceeds: at any price per sample/s, the fastest gang and the cap end it."""
    cap = cap_usd_per_hour(problem)
    gangs = problem.gang_table
    low, high = 0.0, float(gangs.rates.max(initial=0.0))
    for _ in range(_HALVINGS if high > 0 else 0):
        pace = (low + high) / 2.0
        least = _usd_per_sample_s(Useful(problem, pace)) * pace
        is_open = bool(np.any((gangs.rates >= pace) & (gangs.usd_per_hour + least <= cap)))
        low, high = (pace, high) if is_open else (low, pace)
    return high


def _usd_per_sample_s(useful: Useful) -> float:
    """Return the least price of rollout per sample/s at any throughput from the low end on, USD/h."""
    near = useful.is_near
    price = useful.problem.table.price[near] / useful.rates[near]
    return float(price.min(initial=INFINITY))


def _between(problem: Problem, low: float, ceiling: float, width: float) -> Stretched | None:
    """Return a good plan between two throughputs, or None when there is none at the low one."""
    cap = cap_usd_per_hour(problem)
    trial = raised(trial_at(Useful(problem, low)), cap)
    sites = [ranked for ranked in trial.sites if trial.least + ranked.least_usd_per_hour <= cap]
    if not sites:
        return None
    price = _usd_per_sample_s(trial.useful)
    hopes = sorted(sites, key=lambda ranked: -_most(trial.useful, ranked, price))[:_HOPES]
    tries = [_fast_plan(trial, ranked, ceiling, width) for ranked in hopes]
    fast = [_stretched_answer(found, ceiling, width) for found in tries if found.solution.values]
    if fast:
        return max(fast, key=_made)
    plans = (at_site(trial, ranked, INFINITY, cap) for ranked in sites)
    return next((_stretched_answer(found, ceiling, width) for found in plans if found.solution.values), None)


def _fast_plan(trial: Trial, ranked: Ranked, ceiling: float, width: float) -> Found:
    """Return a good plan at a site, if there is one of few columns: throughput is a variable, costs are at its low end.

    Pauses and egress grow with throughput, so it makes a little less than it promises, but no less than the low end.
    """
    useful = trial.useful
    site, problem = ranked.site, useful.problem
    gangs = tuple(gang for gang in site.gangs if gang.samples_per_s * problem.duty >= useful.samples_per_s)
    near = trial.floor.alive[useful.in_reach(site)[trial.floor.alive]]
    extra = trial.floor.extra[near] + useful.egress_usd_per_hour(site)[near]
    few = np.sort(near[np.argsort(extra, kind="stable")[:FEW]])
    rules = build(
        Choice(Useful(useful.problem, useful.samples_per_s, ceiling), tuple(few.tolist()), gangs, site.anchor)
    )
    return Found(rules, solved(rules, width), -INFINITY, 0)


def _most(useful: Useful, ranked: Ranked, usd_per_sample_s: float) -> float:
    """Return a throughput that no plan with the trainer at a site exceeds."""
    problem, cap = useful.problem, cap_usd_per_hour(useful.problem)
    return max(
        min(gang.samples_per_s * problem.duty, (cap - problem.gang_usd_per_hour(gang)) / usd_per_sample_s)
        for gang in ranked.site.gangs
        if problem.gang_usd_per_hour(gang) < cap
    )


def _stretched_answer(found: Found, ceiling: float, width: float) -> Stretched:
    """Stretch an answer that is good at its throughput, or at the low end of its range."""
    rules, held = found.rules, held_in(found)
    low = rules.choice.samples_per_s
    high = ceiling if rules.pace is None else min(ceiling, found.solution.values[rules.pace] * (1.0 + _HAIR))
    return _stretched(rules.problem, held, (low, high), width) or Stretched(held, low)


def _stretched(problem: Problem, held: Held, between: tuple[float, float], width: float) -> Stretched | None:
    """Return the largest throughput of a range at which machines keep every rule, or None when they never do."""
    few = replace(problem, columns=Columns(rollout=tuple(column for column, _ in held.rollout), trainer=(held.gang,)))
    if len(few.rollout) < len(held.rollout) or not few.gangs:
        return None
    site = Site(_anchor(problem, held.gang), few.gangs)
    low, high = between
    if _keeps_rules(few, held, site, high):
        low = high
    while high - low > width * _FINE * high:
        pace = (low + high) / 2.0
        low, high = (pace, high) if _keeps_rules(few, held, site, pace) else (low, pace)
    return Stretched(held, low * (1.0 - _TOLERANCE)) if low > 0 else None


def _anchor(problem: Problem, gang: TrainerColumn) -> Offer:
    """Return the offer from which the ways from a gang's site are measured."""
    place = place_of(gang.offer_id)
    return next(site.anchor for site in problem.sites if place_of(site.anchor.id) == place)


def _keeps_rules(few: Problem, held: Held, site: Site, samples_per_s: float) -> bool:
    """Do these machines, and no others, keep every rule at a throughput?"""
    useful = Useful(few, samples_per_s)
    if few.gangs[0].samples_per_s * few.duty < samples_per_s or not useful.in_reach(site).all():
        return False
    counts = {(column.offer_id, column.tp, column.batch): count for column, count in held.rollout}
    rules = build(Choice(useful, tuple(range(len(few.rollout))), few.gangs, site.anchor))
    for column, machines in rules.rollout:
        rules.model.fix(machines, counts[column.offer_id, column.tp, column.batch])
    return bool(solved(rules, INFINITY).values)
