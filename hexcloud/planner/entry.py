"""entry: what a plan with a certain machine costs, and at which price of that machine it would cost no more."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Objective
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import Found, cheapest, held_in

_GAP = 1e-4
"""Relative; finer than a plan's own, since the answer is a difference of two plans."""
_HAIR = 1e-6
"""Of the price: ties are no reason to change a plan."""
MARGIN = MIP_GAP + _HAIR
"""Share by which a plan with the machine must undercut every plan without: a plan may miss the best one by its gap, and
the machine is to come in for certain."""
ALMOST_FREE = 1e-3
"""Share of its price at which a machine that still does not come in comes in at none."""
_MOST_STEPS = 8
_MOST_HALVINGS = 8
_CLOSE = 0.02
"""Relative: a price that is found by asking is known to so much."""


@dataclass(frozen=True)
class Entry:
    """The cheapest plan with at least one machine of some offers."""

    offer_id: OfferId
    extra_usd_per_hour: float
    """How much more it costs today than the best plan."""
    enters_at_usd_per_hour: float | None
    """Price of one machine at which it comes in for certain: with it a plan costs less, by MARGIN, than any without.

    None when no price above 0 would do.
    """


def entry(problem: Problem, wanted: Iterable[OfferId], samples_per_s: float) -> Entry | None:
    """Return what the cheapest plan with one of the offers costs beyond the best plan, or None if there is none."""
    uncapped = problem.policy.model_copy(update={"max_usd_per_hour": None})
    free = replace(problem, policy=uncapped)
    best = cheapest(free, samples_per_s, _GAP)
    if best is None:
        return None
    offer_id = _nearest(replace(free, require=frozenset(wanted)), samples_per_s, best.bound)
    if offer_id is None:
        return None
    forced = replace(free, require=frozenset([offer_id]))
    found = cheapest(forced, samples_per_s, _GAP)
    if found is None:
        return None
    extra = max(0.0, found.solution.objective - best.solution.objective)
    beaten = best.bound * (1.0 - MARGIN)  # under what is proven of every plan without it
    price = _entry_price(forced, samples_per_s, _worth(found, beaten), beaten)
    return Entry(offer_id, extra, price and _granted(problem, offer_id, price))


def _granted(problem: Problem, offer_id: OfferId, usd_per_hour: float) -> float | None:
    """Return the highest price up to one that brings the offer in as the policy asks.

    Other objectives choose their throughput too, and a cap may forbid the plan: so they are asked.
    """
    policy = problem.policy
    if policy.objective is Objective.MIN_COST and policy.max_usd_per_hour is None:
        return usd_per_hour
    asked = replace(problem, require=frozenset([offer_id]))
    low, high, price = 0.0, usd_per_hour, usd_per_hour
    for _ in range(_MOST_HALVINGS):
        is_in = _comes_in(_at_price(asked, price), offer_id)
        low, high = (price, high) if is_in else (low, price)
        if low >= high * (1.0 - _CLOSE):
            break
        price = (low + high) / 2.0
    return low or None


def _comes_in(priced: Problem, offer_id: OfferId) -> bool:
    """Does the plan that anyone would be given hold the offer?"""
    try:
        plan = solve(replace(priced, require=frozenset()))
    except InfeasibleError:
        return False
    return offer_id in {plan.trainer.column.offer_id, *(share.column.offer_id for share in plan.rollout)}


def _entry_price(forced: Problem, samples_per_s: float, guess: float, budget_usd_per_hour: float) -> float | None:
    """Return the highest price of the required offer at which a plan with it costs the budget, from a first guess.

    The price of the cheapest plan with it rises with its own, ever more slowly, as other plans take over that hold less
    of it. So Newton's steps come from below: solve at the price just found until it no longer rises.
    """
    today = next(offer.usd_per_hour for offer in forced.market.offers if offer.id in forced.require)
    price = max(guess, 0.0)
    for _ in range(_MOST_STEPS):
        found = cheapest(_at_price(forced, max(price, today * ALMOST_FREE)), samples_per_s, _GAP)
        raised = 0.0 if found is None else _worth(found, budget_usd_per_hour)
        if raised <= price * (1 + _GAP):
            break
        price = raised
    return price or None


def _nearest(forced: Problem, samples_per_s: float, budget_usd_per_hour: float) -> OfferId | None:
    """Return the required offer that comes in first as prices fall, or that costs least extra when none does."""
    if len(forced.require) == 1:
        return min(forced.require)
    found = cheapest(forced, samples_per_s, _GAP)
    if found is not None and _worth(found, budget_usd_per_hour) <= 0:
        given = cheapest(_almost_free(forced), samples_per_s, _GAP)
        if given is not None and given.solution.objective < budget_usd_per_hour and _is_of_one_type(given):
            found = given
    held: Counter[OfferId] = Counter()
    for (_, name), count in (_held(found) if found else Counter()).items():
        held[name] += count
    return max(sorted(held), key=lambda name: held[name], default=None)


def _is_of_one_type(found: Found) -> bool:
    """Does a plan hold one type of the required machines? Of a mix nobody could say at which price which comes in."""
    return len({found.rules.problem.offers[name].instance_type for _, name in _held(found)}) == 1


def _worth(found: Found, budget_usd_per_hour: float) -> float:
    """Return the mean price of the required machines at which the plan would cost the budget, USD/h.

    A dollar of rent costs more than a dollar: start-up is paid too, and a spot gang's expected loss is a share of rent.
    """
    held, problem = _held(found), found.rules.problem
    machines = sum(held.values())
    paid = sum(problem.offers[name].usd_per_hour * count for (_, name), count in held.items())
    starts = sum(
        max(0, count - problem.limits.running(name, role)) * problem.new_machine_usd_per_hour(problem.offers[name])
        for (role, name), count in held.items()
    )
    rent, risk = (bill.usd_per_hour(found.solution) for bill in (found.rules.rent, found.rules.risk))
    usd_per_usd = 1.0 + risk / rent + starts / paid
    return (paid + (budget_usd_per_hour - found.solution.objective) / usd_per_usd) / machines


def _almost_free(problem: Problem) -> Problem:
    """Return the problem with all required offers at next to nothing; the cheaper of equal ones stays the cheaper."""
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * ALMOST_FREE})
        if offer.id in problem.require
        else offer
        for offer in problem.market.offers
    )
    return replace(problem, market=problem.market.model_copy(update={"offers": offers}))


def _at_price(problem: Problem, usd_per_hour: float) -> Problem:
    """Return the problem with the required offer at another price."""
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": usd_per_hour}) if offer.id in problem.require else offer
        for offer in problem.market.offers
    )
    return replace(problem, market=problem.market.model_copy(update={"offers": offers}))


def _held(found: Found) -> Counter[tuple[Role, OfferId]]:
    """Return how many machines of each required offer a solution holds in each role."""
    plan, required = held_in(found), found.rules.problem.require
    held = Counter({(Role.TRAINER, plan.gang.offer_id): plan.gang.nodes})
    for column, count in plan.rollout:
        held[Role.ROLLOUT, column.offer_id] += count * column.nodes
    return Counter({key: count for key, count in held.items() if key[1] in required})
