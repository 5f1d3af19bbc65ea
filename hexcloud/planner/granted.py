"""granted: at which price an offer comes in as the policy asks, also where the objective chooses its own throughput.

There a cheaper machine moves the throughput, and with it everything. So the price is one at which a plan with the offer
is faster, or its samples are cheaper, than is proven of every plan today, and the plan is made again with it.
"""

from collections.abc import Sequence
from dataclasses import replace

from hexcloud.domain.errors import InfeasibleError, SolverStoppedError
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.entry import ALMOST_FREE, MARGIN, Entry, Goal, almost_free, at_price, entry_price, most_held
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import S_PER_H, Problem
from hexcloud.planner.search import Found, cheapest
from hexcloud.planner.thriftiest import thriftiest

_MOST_TRIES = 6
"""Plans that are made to find a price between one that is low enough and one that is not: each can take seconds."""
_CLOSE = 0.02
"""Relative: a price that is found by asking is known to so much."""
_TICK = 1e-4
"""USD/h: prices are told to so much, so they are asked at."""


def granted(problem: Problem, offers: Sequence[OfferId], plan: Allocation, there: Entry | None) -> Entry | None:
    """Return at which price one of the offers comes into the plan, or None if no plan the policy wants can hold any.

    `there` is what was found at the plan's throughput.
    """
    policy = problem.policy
    is_paced = policy.objective is Objective.MIN_COST
    if there is None and policy.objective is not Objective.BUDGET_RUN:
        return None  # a plan that is faster still could hold it even less
    if is_paced and policy.max_usd_per_hour is None and there is not None and there.enters_at_usd_per_hour:
        return there
    name, price = (None, None) if is_paced else _at_own_pace(problem, offers, plan)
    if name is None or (price is None and there is not None):
        name = offers[0] if there is None else there.offer_id
    known = there if there is not None and there.offer_id == name else Entry(name, None, None)
    prices = {price for price in (price, known.enters_at_usd_per_hour) if price}
    enters_at = _asked(replace(problem, require=frozenset([name])), name, sorted(prices, reverse=True))
    if enters_at is None and known.extra_usd_per_hour is None:
        return None
    return replace(known, enters_at_usd_per_hour=enters_at, is_asked=True)


def _at_own_pace(problem: Problem, offers: Sequence[OfferId], plan: Allocation) -> tuple[OfferId | None, float | None]:
    """Return the offer that comes in first as prices fall, and a price at which it does for certain."""
    goal = _goal(problem, plan)
    forced = replace(problem, require=frozenset(offers))
    given = goal.best(almost_free(forced))
    name = None if given is None else most_held(given)
    if name is None:
        return None, None
    return name, entry_price(replace(problem, require=frozenset([name])), goal)


def _goal(problem: Problem, plan: Allocation) -> Goal:
    """Return what is better for certain than all that the policy's objective finds today."""
    policy, proof = problem.policy, plan.proof
    if proof.upper_bound_samples_per_s is not None:
        faster = proof.upper_bound_samples_per_s / (1.0 - MARGIN)
        cap = policy.max_usd_per_hour or INFINITY

        def under_cap(found: Found) -> float:
            return cap + found.rules.risk.usd_per_hour(found.solution)  # expected loss does not count as spending

        return Goal(lambda priced: _unless_stopped(priced, faster), under_cap)
    least = (proof.lower_bound_usd_per_sample or 0.0) * S_PER_H * (1.0 - MARGIN)
    return Goal(_thriftiest, lambda found: least * found.rules.choice.samples_per_s)


def _unless_stopped(problem: Problem, samples_per_s: float) -> Found | None:
    try:
        return cheapest(problem, samples_per_s, MIP_GAP)
    except SolverStoppedError:
        return None


def _thriftiest(problem: Problem) -> Found | None:
    try:
        thrift = thriftiest(problem, problem.policy.least_samples_per_s or 0.0, MIP_GAP)
    except SolverStoppedError:
        return None
    return None if thrift is None else thrift.found


def _asked(required: Problem, name: OfferId, prices: list[float]) -> float | None:
    """Return a price that brings the offer in when the plan is made again: one of these, or one that is looked for."""
    today = required.offers[name].usd_per_hour
    for price in map(_told, prices):
        if _comes_in(at_price(required, price), name):
            return price
    low, high = today * ALMOST_FREE, min([*prices, today])
    if low >= high or not _comes_in(at_price(required, low), name):
        return None
    for _ in range(_MOST_TRIES):
        if low >= high * (1.0 - _CLOSE):
            break
        price = _told((low * high) ** 0.5)
        low, high = (price, high) if _comes_in(at_price(required, price), name) else (low, price)
    return low


def _told(usd_per_hour: float) -> float:
    """Return a price as it is told, where that is not 0."""
    return usd_per_hour // _TICK * _TICK or usd_per_hour


def _comes_in(priced: Problem, name: OfferId) -> bool:
    """Does the plan that anyone would be given hold the offer?"""
    try:
        plan = solve(replace(priced, require=frozenset()))
    except InfeasibleError:
        return False
    return name in {plan.trainer.column.offer_id, *(share.column.offer_id for share in plan.rollout)}
