"""thriftiest: the throughput and the plan at which one sample costs least, no slower than a deadline allows.

Cost per sample is a ratio, so Dinkelbach's method: at a known ratio q, is there a plan with cost - q * T under 0? Then
it is better, and its own ratio is the next q. Throughputs are tried in ranges whose coefficients are those of the low
end, as all gets harder as T grows: a range without such a plan is done with. One whose plan promises more than it keeps
is halved.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hexcloud.planner.dominance import Contest, undominated
from hexcloud.planner.fastest import first_ceiling
from hexcloud.planner.floor import rollout_floor
from hexcloud.planner.gangs import Able, Ranked, Site
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.pairs import is_narrow, pairs_at
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice, RuleModel
from hexcloud.planner.search import Found, Held, cheapest, eased_first, held_in
from hexcloud.planner.stretch import stretched
from hexcloud.planner.trial import Trial
from hexcloud.planner.useful import Useful

_STEP = 1.25
"""High over low end of the first ranges."""
_SLOWEST_SHARE = 1e-3
"""Of the first bound on throughput: without a deadline slower runs are not looked at."""
_MOST_TRIES = 80
"""Ranges that are tried, a few dozen as a rule; after so many the plan says how far its proof came."""
_ROUGH = 0.1
"""Relative precision of plans that only have to be better than the last."""
_FINE = 0.25
"""Share of the gap under which a range is as good as one throughput."""


class Thrift(NamedTuple):
    """The best plan, and USD/h per sample/s that no plan is under."""

    found: Found
    bound: float


@dataclass(frozen=True)
class _Best:
    """The cheapest sample so far: machines, their throughput, and USD/h per sample/s."""

    held: Held
    samples_per_s: float
    ratio: float


class _Span(NamedTuple):
    """A range of throughputs; ordered by how cheap its samples might be."""

    ratio: float
    """No sample/s in it costs less, USD/h."""
    low: float
    high: float


def thriftiest(problem: Problem, slowest: float, gap: float, start: Held | None = None) -> Thrift | None:
    """Return the plan whose samples cost least at `slowest` samples/s or more; None when there is none.

    `start` is a plan that was good before prices moved. Raises SolverStoppedError.
    """
    ceiling = first_ceiling(problem)
    slowest = max(slowest, ceiling * _SLOWEST_SHARE)
    known = cheapest(problem, slowest, _ROUGH) if 0 < slowest <= ceiling else None
    if known is None:
        return None
    best = _Best(held_in(known), slowest, known.solution.objective / slowest)
    for held in (best.held, start):
        best = best if held is None else _improved(problem, best, held, (slowest, ceiling), gap)
    best, bound = _swept(problem, best, (slowest, ceiling), gap)
    found = cheapest(problem, best.samples_per_s, gap, best.held)
    return None if found is None else Thrift(found, min(bound, best.ratio))


def _swept(problem: Problem, best: _Best, between: tuple[float, float], gap: float) -> tuple[_Best, float]:
    """Return the best plan of all ranges and what no sample/s costs less than, the most promising ranges first."""
    spans = [_span(problem, low, high) for low, high in _ranges(*between)]
    heapq.heapify(spans)
    bound = INFINITY
    for _ in range(_MOST_TRIES):
        if not spans or spans[0].ratio >= best.ratio * (1.0 - gap):
            break
        span, goal = heapq.heappop(spans), best.ratio * (1.0 - gap)
        answer = _promise(problem, span, goal, gap)
        if answer is None:
            bound = min(bound, goal)
            continue
        better = _improved(problem, best, held_in(answer), (span.low, between[1]), gap)
        is_leap = better.ratio < goal
        if not is_leap and span.high <= span.low * (1.0 + gap * _FINE):
            better, least = _settled(problem, best, span, gap)
            bound = min(bound, least)
        else:
            for part in [span] if is_leap else _halves(problem, span):
                heapq.heappush(spans, part)
        best = better
    return best, min(bound, spans[0].ratio) if spans else bound


def _settled(problem: Problem, best: _Best, span: _Span, gap: float) -> tuple[_Best, float]:
    """Return the better plan, and a bound, for a range so narrow that its low end stands for all of it."""
    found = cheapest(problem, span.low, gap)
    if found is None:
        return best, INFINITY
    return _improved(problem, best, held_in(found), (span.low, span.high), gap), found.bound / span.high


def _span(problem: Problem, low: float, high: float) -> _Span:
    return _Span(_ratio_bound(Useful(problem, low, high)), low, high)


def _halves(problem: Problem, span: _Span) -> list[_Span]:
    middle = (span.low * span.high) ** 0.5
    parts = (_span(problem, span.low, middle), _span(problem, middle, span.high))
    return [part._replace(ratio=max(part.ratio, span.ratio)) for part in parts]


def _ranges(slowest: float, ceiling: float) -> Iterator[tuple[float, float]]:
    low = slowest
    while 0.0 < low <= ceiling:
        high = min(low * _STEP, ceiling)
        yield low, high
        if high == ceiling:
            return
        low = high


def _ratio_bound(useful: Useful) -> float:
    """Return what a sample/s costs at least in a range, USD/h: rollout at its cheapest, and a share of a gang."""
    gangs = useful.problem.gang_table.between(useful.samples_per_s, useful.top)
    shares = gangs.usd_per_hour / np.minimum(gangs.rates, useful.top)
    return useful.least_usd_per_sample_s() + float(shares.min(initial=INFINITY))


def _promise(problem: Problem, span: _Span, ratio: float, gap: float) -> Found | None:
    """Return a plan that promises samples under a ratio in a range, or None when there is none.

    Where it may only promise so much because its egress is that of the low end, a model in which that grows decides.
    """
    useful = Useful(problem, span.low, span.high, is_eased=True)
    answer = _better_in(useful, ratio, grows_egress=False)
    hidden = 0.0 if answer is None else answer.rules.egress.usd_per_hour(answer.solution) * (span.high / span.low - 1.0)
    return answer if hidden <= gap * ratio * span.low else _better_in(useful, ratio, grows_egress=True)


def _better_in(useful: Useful, ratio: float, *, grows_egress: bool) -> Found | None:
    """Return a plan that promises samples under a ratio in a range, or None when no site has one."""
    table, floor = useful.problem.gang_table, rollout_floor(useful)
    able = table.between(useful.samples_per_s, useful.top)
    worth = ratio - floor.usd_per_hour / useful.samples_per_s
    spare = np.minimum(able.rates, useful.top) * worth - able.usd_per_hour
    most = np.full(len(table.sites), -np.inf)
    np.maximum.at(most, able.site, spare)
    trial = Trial(useful, floor, ())
    for number in np.argsort(-most, kind="stable").tolist():
        if most[number] <= 0:
            break
        gangs = able[(able.site == number) & (spare > 0)]
        found = _at_site(trial, _Hope(table.sites[number], gangs, ratio, float(most[number]), grows_egress))
        if found is not None:
            return found
    return None


class _Hope(NamedTuple):
    """A site where samples might cost less than a ratio."""

    site: Site
    gangs: Able
    ratio: float
    spare: float
    """What a plan may pay per hour beyond its cheapest gang and the floor of its rollout."""
    grows_egress: bool


def _at_site(trial: Trial, hope: _Hope) -> Found | None:
    if is_narrow(trial.useful.problem):
        trial, hope = _of_pairs(trial, hope)

    def rules_of(useful: Useful) -> RuleModel:
        near = trial.near(useful, hope.site, hope.spare)
        kept = undominated(Contest(useful, near, hope.gangs.taken))
        choice = Choice(useful, tuple(kept.tolist()), hope.gangs.columns, hope.site.anchor)
        return build(replace(choice, grows_egress=hope.grows_egress, usd_per_sample_s=hope.ratio))

    found = eased_first(trial.useful, rules_of, _ROUGH, 0.0)
    return found if found.solution.values else None


def _of_pairs(trial: Trial, hope: _Hope) -> tuple[Trial, _Hope]:
    """Leave the offers of pairs that cost less at the low end than samples are worth at the high one."""
    ranked = Ranked(float(hope.gangs.usd_per_hour.min()), hope.site, hope.gangs)
    pairs = pairs_at(replace(trial.useful, up_to=None), ranked, hope.ratio * trial.useful.top)
    return replace(trial, among=pairs.offers), hope._replace(gangs=hope.gangs[pairs.gangs])


def _improved(problem: Problem, best: _Best, held: Held, between: tuple[float, float], gap: float) -> _Best:
    """Return the better of the best plan and the one that machines stretch to in a range."""
    longest = stretched(problem, held, between, gap)
    if longest is None or longest.usd_per_hour >= best.ratio * longest.samples_per_s:
        return best
    return _Best(held, longest.samples_per_s, longest.usd_per_hour / longest.samples_per_s)
