"""fastest: the largest throughput any plan can make: a throughput with a plan under one without, closer and closer.

Dearer egress, fewer columns in reach and longer pauses make everything harder as throughput grows, never easier: where
there is no plan there is none beyond. A plan that is found is stretched to the most its machines make, and the next try
is a little over that: when it fails, that is the proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hexcloud.domain.errors import SolverStoppedError
from hexcloud.planner.gangs import Ranked
from hexcloud.planner.milp import INFINITY, Solution
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice, RuleModel
from hexcloud.planner.search import FEW, NODE_LIMIT, Found, Held, at_site, cheapest, eased_first
from hexcloud.planner.stretch import Stretched, stretched, stretched_answer
from hexcloud.planner.trial import Trial, cap_usd_per_hour, few_offers, trial_at
from hexcloud.planner.useful import Useful

_LEAST_SHARE = 1e-6
"""Of the fastest gang: slower runs are none."""
_HALVINGS = 20
"""Of the first bound, which only has to be of the right size."""
_FAR = 0.25
_WIDE = 0.05
"""Share of the ceiling."""
_HOPES = 3
"""Sites at which a fast plan of few columns is tried before all are."""
_MOST_NODES = 3_000
"""Branch-and-bound nodes of one search, over which its answer stays as good as it came; most need a few dozen."""
_HOPE_NODES = 200
"""Branch-and-bound nodes for such a try: any plan is good, and where none is found, sites are tried one by one."""


def fastest(
    problem: Problem, width: float, below: float = INFINITY, start: Held | None = None
) -> tuple[Found | None, float]:
    """Return the cheapest allocation at the largest feasible throughput, and a throughput that no plan can exceed.

    `below` is a throughput known to be out of reach, `start` a plan that was good before. The two are within the
    relative `width`, or further apart where the solver's node limit left throughputs unproven. None when not even a
    millionth of the fastest gang is feasible. Raises SolverStoppedError when no plan was found, nor that there is none.
    """
    ceiling = min(below, first_ceiling(problem))
    roof, least, effort, stopped = ceiling, ceiling * _LEAST_SHARE, _Effort(), None
    best = None if start is None else stretched(problem, start, (least, ceiling), width)
    # The fastest gang is often what ends it, and otherwise the ceiling is ruled out at once.
    low = ceiling * (1.0 - width / 2.0) if best is None else min(best.samples_per_s * (1.0 + width), ceiling)
    while low > least and roof - _made(best) > width * roof and effort.left > 0:
        try:
            found = _between(problem, (low, roof), width, effort)
        except SolverStoppedError as error:
            # Plans further down are easier to find, and that there is none further down proves as much as here.
            stopped, roof = error, low
            low = (_made(best) + roof) / 2.0
            continue
        is_better = _made(found) > _made(best) * (1.0 + width)
        best = max(best, found, key=_made)
        # Close to the best is where the proof is, so that is next, unless the best has hardly moved from where it was
        # looked for: then there is more to be had further up.
        is_close = found is None or (is_better and _made(found) - low > _FAR * (roof - low))
        if found is None:
            ceiling = roof = low
        between = (_made(best) + roof) / 2.0
        low = min(_made(best) * (1.0 + width), between) if is_close and best is not None else between
    if best is None and stopped is not None:
        raise stopped
    return (None if best is None else cheapest(problem, best.samples_per_s, width, best.held)), ceiling


@dataclass
class _Effort:
    """What a search may still take, in branch-and-bound nodes."""

    left: int = _MOST_NODES


def _made(plan: Stretched | None) -> float:
    return 0.0 if plan is None else plan.samples_per_s


def first_ceiling(problem: Problem) -> float:
    """Return a throughput that no plan exceeds: at any price per sample/s, the fastest gang and the cap end it."""
    cap = cap_usd_per_hour(problem)
    gangs = problem.gang_table.all
    low, high = 0.0, float(gangs.rates.max(initial=0.0))
    for _ in range(_HALVINGS if high > 0 else 0):
        pace = (low + high) / 2.0
        least = Useful(problem, pace).least_usd_per_sample_s() * pace
        is_open = bool(np.any((gangs.rates >= pace) & (gangs.usd_per_hour + least <= cap)))
        low, high = (pace, high) if is_open else (low, pace)
    return high


def _between(problem: Problem, between: tuple[float, float], width: float, effort: _Effort) -> Stretched | None:
    """Return a good plan between two throughputs, or None when there is none at the low one.

    Raises SolverStoppedError when neither is found.
    """
    low, ceiling = between
    cap = cap_usd_per_hour(problem)
    trial = trial_at(Useful(problem, low, is_eased=True))
    price = trial.useful.least_usd_per_sample_s()
    is_wide = low < ceiling * (1.0 - max(width, _WIDE))  # else any plan will do, and there may be none
    most = problem.gang_table.most_by_site(cap, price) if is_wide and trial.sites else np.zeros(0)
    hopes = sorted(trial.sites, key=lambda ranked: -most[ranked.site.number])[:_HOPES] if is_wide else []
    tries = [_fast_plan(trial, ranked, ceiling, width) for ranked in hopes]
    fast = [stretched_answer(found, ceiling, width) for found in tries if found.solution.values]
    if fast:
        return max(fast, key=_made)
    plans = (found for found in _site_plans(trial, cap, effort) if found.solution.values)
    return next((stretched_answer(found, ceiling, width) for found in plans), None)


def _site_plans(trial: Trial, cap: float, effort: _Effort) -> Iterator[Found]:
    """Try every site. Raises SolverStoppedError."""
    stopped: SolverStoppedError | None = None
    for ranked in trial.sites:
        if trial.floor.usd_per_hour + ranked.least_usd_per_hour > cap:
            continue
        if stopped is not None and effort.left <= 0:
            break
        try:
            found = at_site(trial, ranked, INFINITY, cap)
        except SolverStoppedError as error:
            stopped, effort.left = error, effort.left - NODE_LIMIT
            continue
        effort.left -= found.nodes
        yield found
    if stopped is not None:
        raise stopped


def _fast_plan(trial: Trial, ranked: Ranked, ceiling: float, width: float) -> Found:
    """Return a good plan at a site, if there is one of few columns: throughput is a variable, costs are at its low end.

    Pauses and egress grow with throughput, so it makes a little less than it promises, but no less than the low end.
    """
    site, alive = ranked.site, trial.floor.alive
    near = alive[trial.useful.in_reach(site)[alive]]
    extra = trial.floor.extra[near] + trial.useful.egress_usd_per_hour(site)[near]
    few = replace(trial, among=few_offers(trial.useful, near[np.argsort(extra, kind="stable")[:FEW]]))
    gangs = trial.useful.problem.gang_table.between(trial.useful.samples_per_s, ceiling, site.number).columns

    def rules_of(useful: Useful) -> RuleModel:
        rows = few.near(useful, site, INFINITY)
        return build(Choice(useful, tuple(rows.tolist()), gangs, site.anchor))

    return eased_first(replace(trial.useful, up_to=ceiling), rules_of, width, INFINITY, _hoped)


def _hoped(rules: RuleModel, gap: float) -> Solution:
    """Return the best plan of few nodes, proven or not.

    Beside a spot share the presolved models of a range take up to a second a node, 5 to 30 times as long as without.
    """
    return rules.model.minimise(gap=gap, node_limit=_HOPE_NODES, presolve=not rules.useful.shares_spot)
