"""stretch: the most that given machines make with every rule kept, and what they cost then."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from hexcloud.domain.offer import Offer, place_of
from hexcloud.domain.plan import Columns, TrainerColumn
from hexcloud.planner.gangs import Site
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice
from hexcloud.planner.search import Found, Held, held_in, solved
from hexcloud.planner.useful import Useful

_FINE = 0.05
"""Share of the width to which it is known what a fleet makes."""
_HAIR = 1e-9
_TOLERANCE = 1e-8
"""The solver takes a row for kept that is missed by less; what is planned is to be kept by every model of it."""


class Stretched(NamedTuple):
    """Machines, the most they make with every rule kept, and their cost at that throughput, USD/h."""

    held: Held
    samples_per_s: float
    usd_per_hour: float


def stretched_answer(found: Found, ceiling: float, width: float) -> Stretched:
    """Stretch an answer that is good at its throughput, or at the low end of its range."""
    rules, held = found.rules, held_in(found)
    low = rules.choice.samples_per_s
    high = ceiling if rules.pace is None else min(ceiling, found.solution.values[rules.pace] * (1.0 + _HAIR))
    return stretched(rules.problem, held, (low, high), width) or Stretched(held, low, INFINITY)


def stretched(problem: Problem, held: Held, between: tuple[float, float], width: float) -> Stretched | None:
    """Return the largest throughput of a range at which machines keep every rule; None when not even the least one."""
    fleet = _fleet_of(problem, held)
    if fleet is None:
        return None
    low, high = between
    if _price(fleet, low) == INFINITY:
        return None
    if _price(fleet, high) < INFINITY:
        low = high
    while high - low > width * _FINE * high:
        pace = (low + high) / 2.0
        low, high = (pace, high) if _price(fleet, pace) < INFINITY else (low, pace)
    made = max(between[0], low * (1.0 - _TOLERANCE))
    return Stretched(fleet.held, made, _price(fleet, made))


def kept_at(problem: Problem, held: Held, samples_per_s: float) -> Found | None:
    """Return what machines cost at a throughput at least; None where they break a rule there."""
    fleet = _fleet_of(problem, held)
    found = None if fleet is None else _answer(fleet, samples_per_s, gap=0.0)
    return found if found is not None and found.solution.values else None


class _Fleet(NamedTuple):
    """Machines that can be had today, a problem without any others, and where their gang is."""

    few: Problem
    held: Held
    site: Site


def _fleet_of(problem: Problem, held: Held) -> _Fleet | None:
    """Return machines with today's rates; None when one can no longer be had."""
    today = _today(problem.kinds, held)
    if today is None:
        return None
    own = Columns(rollout=tuple(column for column, _ in today.rollout), trainer=(today.gang,))
    few = replace(problem, columns=own, keeps_all=True)
    anchor = _anchor(problem, today.gang)
    if len(few.rollout) < len(today.rollout) or not few.gangs or anchor is None or _is_over_stock(few, today):
        return None
    return _Fleet(few, today, replace(few.sites[0], anchor=anchor))


def _today(kinds: Kinds, held: Held) -> Held | None:
    """Return the machines with today's rates, which may have been learned since; None when one can no longer be had."""
    rollout = tuple((kinds.rollout_like(column), count) for column, count in held.rollout)
    gang = kinds.gang_like(held.gang)
    known = tuple((column, count) for column, count in rollout if column is not None)
    return None if gang is None or len(known) < len(rollout) else Held(known, gang)


def _is_over_stock(few: Problem, held: Held) -> bool:
    """Is there less of an offer than the machines held? A fixed variable knows no bound."""
    wanted = Counter({held.gang.offer_id: held.gang.nodes})
    for column, count in held.rollout:
        wanted[column.offer_id] += count * column.nodes
    return any(count > few.stock[name] for name, count in wanted.items())


def _anchor(problem: Problem, gang: TrainerColumn) -> Offer | None:
    """Return the offer from which the ways from a gang's site are measured; None where nobody can train any more."""
    place = place_of(gang.offer_id)
    return next((site.anchor for site in problem.sites if place_of(site.anchor.id) == place), None)


def _price(fleet: _Fleet, samples_per_s: float) -> float:
    """Return what these machines, and no others, cost at a throughput, USD/h; infinity when a rule is broken."""
    found = _answer(fleet, samples_per_s, INFINITY)
    return INFINITY if found is None else found.solution.objective


def _answer(fleet: _Fleet, samples_per_s: float, gap: float) -> Found | None:
    few, held, site = fleet
    useful = Useful(few, samples_per_s)
    if few.gangs[0].samples_per_s * few.duty < samples_per_s or not useful.in_reach(site).all():
        return None
    counts = {(column.offer_id, column.tp, column.batch): count for column, count in held.rollout}
    rules = build(Choice(useful, tuple(range(len(useful.table))), few.gangs, site.anchor))
    for column, machines in rules.rollout:
        rules.model.fix(machines, counts[column.offer_id, column.tp, column.batch])
    solution = solved(rules, gap)
    return Found(rules, solution, solution.bound, solution.nodes)
