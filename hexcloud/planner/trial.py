"""trial: one throughput that is tried at every site, with a floor that rules most sites out."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hexcloud.planner.alike import least_alike
from hexcloud.planner.dominance import Contest, undominated
from hexcloud.planner.floor import Floor, rollout_floor
from hexcloud.planner.gangs import Ranked, Site
from hexcloud.planner.milp import INFINITY, Status
from hexcloud.planner.pairs import is_narrow
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice
from hexcloud.planner.table import Flags, Floats, Ints
from hexcloud.planner.useful import Useful

_A_FEW_MACHINES = 3.0
"""Of more, whole ones are hardly dearer than fractions."""
_FLOOR_GAP = 1e-3
_FLOOR_NODES = 100
"""The floor in whole machines is only a bound: stopping early leaves it lower, never wrong."""
_HAIR = 1e-9


@dataclass(frozen=True)
class Trial:
    """One throughput that is tried at every site."""

    useful: Useful
    """Eased."""
    floor: Floor
    sites: tuple[Ranked, ...]
    """Cheapest gang first, none over the hourly cap."""
    rise: float = 0.0
    """By how much whole machines are dearer than the floor, as far as is proven, USD/h."""
    among: Flags | None = None
    """Offers, by number, that a first guess may hold; None: all."""

    @property
    def least(self) -> float:
        """Return what rollout costs at least, USD/h."""
        return self.floor.usd_per_hour + self.rise

    @cached_property
    def exact_extra(self) -> Floats:
        """USD/h by which using one of the exact columns raises the floor."""
        return self.floor.extra_of(self.useful.exact)

    def near(self, useful: Useful, site: Site, most_extra: float) -> Ints:
        """Return the rows in reach of a site, of the eased or the exact columns, that add no more than so much."""
        rows = self.floor.alive if useful.is_eased else np.arange(len(useful.table))
        extra = self.floor.extra if useful.is_eased else self.exact_extra
        if self.among is not None:
            rows = np.flatnonzero(self.among[useful.table.offer])
        over = extra[rows] + useful.egress_usd_per_hour(site)[rows]
        return rows[useful.in_reach(site)[rows] & (over <= most_extra)]


def trial_at(useful: Useful) -> Trial:
    """Return a throughput with its floor and the sites that can train it."""
    floor = rollout_floor(useful)
    budget = cap_usd_per_hour(useful.problem) - floor.usd_per_hour
    ranked = useful.problem.gang_table.ranked(useful.samples_per_s, budget) if floor.usd_per_hour < INFINITY else []
    return Trial(useful, floor, tuple(ranked))


def cap_usd_per_hour(problem: Problem) -> float:
    """Return what no plan may cost; a hair more, so that a bound never rules out a plan that costs just that."""
    return (problem.policy.max_usd_per_hour or INFINITY) * (1.0 + _HAIR)


def few_offers(useful: Useful, rows: Ints) -> Flags:
    """Return the offers of some rows, by number."""
    among = np.zeros(len(useful.table.facts), np.bool_)
    among[useful.table.offer[rows]] = True
    return among


def _needs_few_machines(trial: Trial) -> bool:
    """Does the floor pay for a few machines only, or a part of one, of the kind that it is made of?"""
    floor = trial.floor
    usual = floor.alive[np.argmin(floor.extra[floor.alive])]
    return bool(floor.usd_per_hour < _A_FEW_MACHINES * trial.useful.table.price[usual])


def raised(trial: Trial, ceiling: float) -> Trial:
    """Raise the floor to what whole machines cost, as far as the ceiling is concerned.

    One solve without egress rules out most sites where small targets make fractions of machines misleadingly cheap. It
    takes longer than that of a site, so it is not worth it for one, nor where many machines are needed.
    """
    floor, useful = trial.floor, trial.useful
    open_sites = sum(floor.usd_per_hour + ranked.least_usd_per_hour < ceiling for ranked in trial.sites)
    if open_sites <= 1 or ceiling == INFINITY or is_narrow(useful.problem) or not _needs_few_machines(trial):
        return trial
    slack = ceiling - floor.usd_per_hour - trial.sites[0].least_usd_per_hour
    near = floor.alive[floor.extra[floor.alive] <= slack]
    taken = np.zeros(len(useful.table.facts))
    for ranked in trial.sites:
        affordable = ranked.able[floor.usd_per_hour + ranked.able.usd_per_hour <= ceiling]
        np.maximum.at(taken, affordable.offer, affordable.nodes)
    kept = undominated(Contest(useful, near, taken, relaxed=True))
    rules = build(Choice(useful, tuple(kept.tolist()), (), None, relaxed=True))
    rules.model.cap_objective(floor.usd_per_hour + slack)
    solution = rules.model.minimise(gap=_FLOOR_GAP, node_limit=_FLOOR_NODES)
    bound = solution.bound
    if solution.status is Status.STOPPED:
        near = np.flatnonzero(useful.exact.is_near & (trial.exact_extra <= slack))
        bound = max(bound, least_alike(useful.exact, near, floor.usd_per_hour + slack).usd_per_hour)
    return replace(trial, rise=min(slack, max(0.0, bound - floor.usd_per_hour)))
