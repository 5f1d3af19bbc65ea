"""alike: what whole machines cost at least at a site, machines of a kind as one variable wherever they stand.

Where a target takes a handful of machines, the linear relaxation spreads fractions of them over dozens of failure
domains, as if the loss of one cost nothing, and the tree finds out offer by offer that it does. Here a kind is all
columns that count the same in every rule, at the price of the cheapest. A plan that holds a kind loses at least one
machine of it with some domain: that is all this model knows of domains, and nothing of regions, stock and quotas. So it
bounds every plan from below, with a few dozen variables.
"""

from typing import NamedTuple

import numpy as np

from hexcloud.planner.milp import INFINITY, Model, Solution, Variable
from hexcloud.planner.rules import UNNAMED
from hexcloud.planner.table import Flags, Floats, Ints
from hexcloud.planner.useful import Useful

NODE_LIMIT = 2_000
"""Branch-and-bound nodes; most need a few dozen. Stopping early leaves the bound lower, never wrong."""
_GAP = 1e-4
"""Relative, of the rollout side: far below that of a plan."""


class Least(NamedTuple):
    """A lower bound on the rollout side, USD/h, and the rows of the kinds that would be held at that price."""

    usd_per_hour: float
    rows: Ints


class _Kinds(NamedTuple):
    """Arrays over kinds; of rows the number of the kind."""

    number: Ints
    price: Floats
    most: Floats
    made: Floats
    surviving: Floats
    full_rates: Floats
    cores: Floats
    slots: Floats
    is_spot: Flags


def least_alike(useful: Useful, near: Ints, ceiling: float) -> Least:
    """Return a lower bound, up to the ceiling, on rollout of the exact columns in some rows at one throughput, USD/h.

    Where the bound is the ceiling there is no plan under it, and no row is returned.
    """
    if len(near) == 0:
        return Least(ceiling, near)
    kinds = _kinds(useful, near)
    model, machines = _model(useful, kinds, ceiling)
    model.cap_objective(ceiling)
    solution = model.minimise(gap=_GAP, node_limit=NODE_LIMIT)
    return Least(min(ceiling, solution.bound), near[_is_held(solution, machines)[kinds.number]])


def _kinds(useful: Useful, near: Ints) -> _Kinds:
    table = useful.table
    facts = [useful.made, useful.surviving, useful.full_rates, useful.cores, table.slots, table.is_spot]
    kinds, number = np.unique(np.stack([fact[near] for fact in facts], axis=1), axis=0, return_inverse=True)
    number = number.reshape(-1)
    price, most = np.full(len(kinds), INFINITY), np.zeros(len(kinds))
    np.minimum.at(price, number, table.price[near])
    np.add.at(most, number, useful.most[near])
    made, surviving, full_rates, cores, slots, is_spot = kinds.T
    return _Kinds(number, price, most, made, surviving, full_rates, cores, slots, is_spot > 0)


def _model(useful: Useful, kinds: _Kinds, ceiling: float) -> tuple[Model, list[Variable]]:
    """Return the model, in shares of the throughput, and the variables that count machines."""
    problem, target = useful.problem, useful.samples_per_s
    with np.errstate(divide="ignore"):
        most = np.minimum(kinds.most, ceiling / kinds.price)
    model = Model()
    machines = [
        model.add_variable(cost=price, upper=limit, integer=True)
        for price, limit in zip(kinds.price.tolist(), most.tolist(), strict=True)
    ]

    def add(worth: Floats, *, lower: float = -INFINITY, upper: float = INFINITY) -> None:
        model.add_row(UNNAMED, zip(machines, worth.tolist(), strict=True), lower=lower, upper=upper)

    add(kinds.made / target, lower=1.0)
    add(kinds.cores, lower=useful.reward_vcpus)
    in_flight = (problem.workload.eta + 1) * problem.workload.samples_per_step
    add(kinds.slots, upper=in_flight + problem.slack.get("in_flight", 0.0))
    spot = problem.policy.max_spot_share
    add(np.where(kinds.is_spot, 1.0 - spot, -spot) * kinds.full_rates / target, upper=0.0 if spot < 1 else INFINITY)
    _add_survival(useful, kinds, model, machines)
    return model, machines


def _add_survival(useful: Useful, kinds: _Kinds, model: Model, machines: list[Variable]) -> None:
    """Without one machine of a kind that is held sigma * T must remain, less the most that any domain is let off."""
    problem = useful.problem
    survivors = problem.policy.survival_share * useful.samples_per_s
    if survivors == 0:
        return
    slack = max((left for name, left in problem.slack.items() if name.startswith("survive[")), default=0.0)
    total = model.add_variable()
    shares = (kinds.surviving / survivors).tolist()
    model.add_row(UNNAMED, [*zip(machines, shares, strict=True), (total, -1.0)], lower=0.0, upper=0.0)
    for held, share in zip(machines, shares, strict=True):
        is_held = model.add_variable(upper=1.0, integer=True)
        model.add_row(UNNAMED, [(held, 1.0), (is_held, -model.upper(held))], upper=0.0)
        model.add_row(UNNAMED, [(total, 1.0), (is_held, -share)], lower=1.0 - slack / survivors)


def _is_held(solution: Solution, machines: list[Variable]) -> Flags:
    if not solution.values:
        return np.zeros(len(machines), np.bool_)
    return np.array([solution.count(held) > 0 for held in machines], np.bool_)
