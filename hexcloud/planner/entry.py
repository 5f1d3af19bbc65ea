"""entry: what a plan with a certain machine costs, and at which price of that machine it would cost no more.

All at one throughput; `granted` asks for objectives that choose theirs.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role
from hexcloud.planner.allocate import MIP_GAP
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


@dataclass(frozen=True)
class Entry:
    """The cheapest plan with at least one machine of some offers."""

    offer_id: OfferId
    extra_usd_per_hour: float | None
    """How much more it costs today than the best plan; None when no plan of that throughput can hold it."""
    enters_at_usd_per_hour: float | None
    """Price of one machine at which it comes in for certain: with it a plan costs less, by MARGIN, than any without.

    None when no price above 0 would do.
    """
    is_tie: bool = False
    """Is the extra no more than what a plan may miss the best one by?"""
    is_asked: bool = False
    """Did the price come of making the plan again with it, rather than of MARGIN? A little more may do then."""


class Goal(NamedTuple):
    """What a plan with required offers has to be to beat every plan without."""

    best: Callable[[Problem], Found | None]
    budget: Callable[[Found], float]
    """What such a plan may cost, USD/h."""


def entry(problem: Problem, wanted: Iterable[OfferId], samples_per_s: float) -> Entry | None:
    """Return what the cheapest plan with one of the offers costs beyond the best plan, or None if there is none."""
    uncapped = problem.policy.model_copy(update={"max_usd_per_hour": None})
    free = replace(problem, policy=uncapped)
    best = cheapest(free, samples_per_s, _GAP)
    if best is None:
        return None
    offer_id, found = _nearest(replace(free, require=frozenset(wanted)), samples_per_s, best.bound)
    if offer_id is None or found is None:
        return None
    forced = replace(free, require=frozenset([offer_id]))
    if {name for _, name in _held(found)} != forced.require or found.rules.problem.market is not free.market:
        found = cheapest(forced, samples_per_s, _GAP)  # else the best with any of them is the best with this one
    if found is None:
        return None
    extra = max(0.0, found.solution.objective - best.solution.objective)
    beaten = best.bound * (1.0 - MARGIN)  # under what is proven of every plan without it
    goal = Goal(lambda priced: cheapest(priced, samples_per_s, _GAP), lambda _: beaten)
    price = entry_price(forced, goal, _worth(found, beaten))
    return Entry(offer_id, extra, price, is_tie=extra <= MIP_GAP * best.solution.objective)


def entry_price(forced: Problem, goal: Goal, guess: float = 0.0) -> float | None:
    """Return the highest price of the required offer at which a plan with it costs the budget, from one that is lower.

    The price of the cheapest plan with it rises with its own, ever more slowly, as other plans take over that hold less
    of it. So Newton's steps come from below: solve at the price just found until it no longer rises.
    """
    today = next(offer.usd_per_hour for offer in forced.market.offers if offer.id in forced.require)
    price = max(guess, 0.0)
    for _ in range(_MOST_STEPS):
        found = goal.best(at_price(forced, max(price, today * ALMOST_FREE)))
        raised = 0.0 if found is None else _worth(found, goal.budget(found))
        if raised <= price * (1 + _GAP):
            break
        price = raised
    return price or None


def _nearest(forced: Problem, samples_per_s: float, budget_usd_per_hour: float) -> tuple[OfferId | None, Found | None]:
    """Return the required offer that comes in first as prices fall, or that costs least extra when none does.

    And the plan that holds it.
    """
    found = cheapest(forced, samples_per_s, _GAP)
    if found is not None and len(forced.require) > 1 and _worth(found, budget_usd_per_hour) <= 0:
        given = cheapest(almost_free(forced), samples_per_s, _GAP)
        if given is not None and given.solution.objective < budget_usd_per_hour and _is_of_one_type(given):
            found = given
    return (None, None) if found is None else (most_held(found), found)


def most_held(found: Found) -> OfferId | None:
    """Return the required offer of which a plan holds most machines."""
    held: Counter[OfferId] = Counter()
    for (_, name), count in _held(found).items():
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


def almost_free(problem: Problem) -> Problem:
    """Return the problem with all required offers at next to nothing; the cheaper of equal ones stays the cheaper."""
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * ALMOST_FREE})
        if offer.id in problem.require
        else offer
        for offer in problem.market.offers
    )
    return replace(problem, market=problem.market.model_copy(update={"offers": offers}))


def at_price(problem: Problem, usd_per_hour: float) -> Problem:
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
