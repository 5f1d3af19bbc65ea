"""floor: what the rollout side costs at least wherever the trainer stands, and what each column would add to that.

Weak duality: whatever the prices of the rules, what they say is a lower bound. So the prices come from a small linear
model of columns that no other beats, and the bound and the extras of all columns from arrays.
"""

from dataclasses import dataclass

import numpy as np

from hexcloud.planner.dominance import Contest, undominated
from hexcloud.planner.milp import INFINITY, Solution
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice
from hexcloud.planner.table import Floats, Ints
from hexcloud.planner.useful import Useful

_FIRST = 200
"""Columns that the linear model begins with."""
_ROUNDS = 5
_HAIR = 1e-9


@dataclass(frozen=True)
class Floor:
    """A lower bound on the rollout side at one throughput, USD/h; infinite when no columns suffice.

    Of a range of throughputs it is that of the low end, in fractions of machines that count as far as the high end: it
    grows with the throughput at least in proportion, and what a column adds stays.
    """

    usd_per_hour: float
    alive: Ints
    """Rows of the eased columns that are in reach of a trainer beside them and lose to no other at any site."""
    extra: Floats
    """Of all rows: USD/h by which using one raises the bound."""
    priced: Solution | None = None
    """Where the prices of the rules come from; None: nowhere."""

    def extra_of(self, useful: Useful) -> Floats:
        """Return what using each column of other rows at the same throughput adds to the bound, USD/h."""
        if self.priced is None:
            return np.zeros(len(useful.table))
        return np.maximum(0.0, useful.table.price - _priced(useful, self.priced)[1])


def rollout_floor(useful: Useful) -> Floor:
    """Return the floor of eased columns at a throughput: the model without gangs and egress, in fractions of machines.

    The linear model begins with the cheapest columns per sample and takes in those that its prices show to be cheaper
    still; the bound holds for all columns whichever are in it.
    """
    near = np.flatnonzero(useful.is_near)
    taken = useful.problem.gang_table.between(useful.samples_per_s, useful.top).taken
    alive = undominated(Contest(useful, near, taken, any_site=True))
    few = undominated(Contest(useful, alive, taken, relaxed=True))
    ranked = few[np.argsort(useful.table.price[few] / useful.made[few], kind="stable")]
    chosen = ranked[:_FIRST]
    best = Floor(-INFINITY, alive, np.zeros(len(useful.table)))
    for _ in range(_ROUNDS):
        solution = _priced_by(useful, chosen)
        if not solution.values and len(chosen) < len(ranked):
            solution, chosen = _priced_by(useful, ranked), ranked
        if not solution.values:
            return Floor(INFINITY, alive, best.extra)
        bound, reduced = _certified(useful, solution, alive)
        if bound > best.usd_per_hour:
            best = Floor(bound, alive, np.maximum(0.0, reduced), solution)
        cheaper = np.setdiff1d(ranked[reduced[ranked] < -_HAIR], chosen)
        if len(cheaper) == 0:
            break
        chosen = np.r_[chosen, cheaper]
    return best


def _priced_by(useful: Useful, columns: Ints) -> Solution:
    """Solve the linear model of some columns."""
    choice = Choice(useful, tuple(np.sort(columns).tolist()), (), None, relaxed=True)
    return build(choice).model.minimise(gap=0.0, node_limit=0, relaxed=True)


def _certified(useful: Useful, solution: Solution, alive: Ints) -> tuple[float, Floats]:
    """Return the bound that the prices of the rules prove, and every column's reduced cost under them, USD/h."""
    table = useful.table
    bound, paid = _priced(useful, solution)
    reduced: Floats = table.price - paid
    worst = np.zeros(len(table.facts))
    np.minimum.at(worst, table.offer[alive], reduced[alive] / table.nodes[alive])
    return bound + float(worst @ table.facts.stock), reduced


def _priced(useful: Useful, solution: Solution) -> tuple[float, Floats]:
    """Return what the rules' limits are worth at the solution's prices, and what each column earns of that, USD/h."""
    problem, table = useful.problem, useful.table
    share, top = problem.policy.survival_share, useful.top
    rate = _price(solution, "rollout_rate") / min(top, 1.0)
    cores = _price(solution, "reward_cpu")
    bound = rate * useful.samples_per_s + cores * problem.workload.reward_cpu_s_per_sample * useful.samples_per_s
    earned: Floats = rate * useful.made + cores * useful.cores
    names, domains = table.domains
    unit = min(share * top, 1.0)
    for number, name in enumerate(names):
        survival = _price(solution, f"survive[{name}]")
        if survival > 0:
            slack = problem.slack.get(f"survive[{name}]", 0.0)
            bound += survival / unit * (share * useful.samples_per_s - slack)
            earned = earned + np.where(domains == number, 0.0, survival / unit * useful.surviving)
    spot = _price(solution, "spot_share")
    if spot > 0:
        stays = 1.0 - problem.policy.max_spot_share
        bound += spot / min(stays * top, 1.0) * stays * useful.samples_per_s
        earned = earned + spot / min(stays * top, 1.0) * useful.staying
    for number, key in enumerate(table.facts.quotas):
        quota = _price(solution, f"quota[{key}]")
        if quota > 0:
            bound -= quota * problem.quotas[key]
            earned = earned - sum(np.where(draw.quota == number, quota * draw.units, 0.0) for draw in table.draws)
    return bound, earned


def _price(solution: Solution, name: str) -> float:
    """Return a rule's price, whichever side its limit is on; rounding of the other sign is none."""
    dual = solution.duals.get(name, 0.0)
    return abs(dual)
