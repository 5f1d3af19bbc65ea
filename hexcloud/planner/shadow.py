"""shadow: what one unit of each rule that binds a plan is worth, by solving again with that rule a unit looser.

Duals of the relaxed model would be wrong here: machines are whole, so a looser rule may save much, or nothing at all.
"""

from dataclasses import replace

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.dials import Stand, Turned, turn
from hexcloud.planner.listed import listed
from hexcloud.planner.problem import Problem
from hexcloud.planner.words import rule_in_words

_GAP = 1e-5
"""Relative; far finer than a plan's own, since the answer is a difference of two plans."""
_NOISE = 2.0 * _GAP
"""Share of a plan's worth under which a difference may be nothing but the gap of both."""
_ALWAYS = ("target", "staleness_reach", "deadline")
"""Rules that are priced whether or not one machine decides them: the ask itself, and what it may take."""


class ShadowPrice(Frozen):
    """What one unit of a rule is worth."""

    rule: str
    """Name of a row, as in `Proof.binding`; `target` for the rows of both rates together."""
    meaning: str
    """What the rule demands."""
    change: str
    """How it was loosened, in words."""
    step: float
    """By how many units it was loosened; the price is the gain over the step, in whole machines."""
    unit: str
    gain_per_unit: float | None
    """How much better the best plan is for each unit, in `gain_unit`; None where no plan was found."""
    gain_unit: str
    """`USD/h` saved for a target, `tok/s` more for a cap, `USD` of the whole run saved for a budget."""


def rule_prices(market: Market, workload: Workload, policy: Policy, allocation: Allocation) -> tuple[ShadowPrice, ...]:
    """Return the price of every rule that binds a plan which was made from these, with nothing rented yet."""
    return shadow_prices(listed(market, workload, policy), allocation)


def shadow_prices(problem: Problem, allocation: Allocation) -> tuple[ShadowPrice, ...]:
    """Return the price of every binding rule of an allocation, in the order of its proof. A solve for each."""
    stand = Stand(problem, allocation.samples_per_s)
    rules = dict.fromkeys((_ALWAYS[0], *allocation.proof.binding, *_ALWAYS[1:]))
    best: dict[Objective, float] = {}
    prices = (_price(rule, stand, best, allocation) for rule in rules)
    return tuple(price for price in prices if price is not None)


def _price(rule: str, stand: Stand, best: dict[Objective, float], start: Allocation) -> ShadowPrice | None:
    turned = turn(rule, stand)
    if turned is None:
        return None
    before, after = stand.problem, turned.problem
    if rule == "hourly_budget":  # what a cap keeps out is throughput, whatever the plan is made for
        before, after = _fastest(before), _fastest(after)
    objective = before.policy.objective
    if objective not in best:
        best[objective] = _worth(before, start)
    return ShadowPrice(
        rule=rule,
        meaning=rule_in_words(rule),
        change=turned.change,
        step=turned.step,
        unit=turned.unit,
        gain_per_unit=_gain(best[objective], _worth(after, start), turned),
        gain_unit=_UNITS[objective],
    )


_UNITS = {Objective.MIN_COST: "USD/h", Objective.MAX_THROUGHPUT: "tok/s", Objective.BUDGET_RUN: "USD"}
_NONE = float("-inf")


def _fastest(problem: Problem) -> Problem:
    policy = problem.policy.model_copy(update={"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None})
    return replace(listed(problem.market, problem.workload, policy, problem.fleet), require=problem.require)


def _worth(problem: Problem, start: Allocation) -> float:
    """Return what the best plan is worth in the unit of its objective, more is better; minus infinity without one."""
    try:
        plan = solve(problem, _GAP, start)
    except InfeasibleError:
        return _NONE
    policy = problem.policy
    if policy.objective is Objective.MAX_THROUGHPUT:
        return plan.samples_per_s * problem.workload.tokens_per_sample
    if policy.objective is Objective.BUDGET_RUN:
        return -plan.usd_per_hour * (policy.run_samples or 0.0) / plan.samples_per_s / 3600.0
    return -plan.usd_per_hour


def _gain(before: float, after: float, turned: Turned) -> float | None:
    """Return the gain per unit; a looser rule never makes it worse, and less than the gap is nothing."""
    if _NONE in (before, after):
        return None
    gain = after - before
    return gain / turned.step if gain > _NOISE * abs(before) else 0.0
