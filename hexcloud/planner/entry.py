"""entry: what a plan with a certain machine costs, and at which price of that machine it would cost no more."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hexcloud.domain.offer import OfferId
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import Found, cheapest

_GAP = 1e-4
"""Relative; finer than a plan's own, since the answer is a difference of two plans."""
_HAIR = 1e-6
"""Of the price: ties are no reason to change a plan."""
ALMOST_FREE = 1e-3
"""Share of its price at which a machine that still does not come in comes in at none."""


@dataclass(frozen=True)
class Entry:
    """The cheapest plan with at least one machine of some offers."""

    offer_id: OfferId
    extra_usd_per_hour: float
    """How much more it costs today than the best plan."""
    enters_at_usd_per_hour: float | None
    """Price of one machine at which a plan with it costs less; None when not even an almost free one would do."""


def entry(problem: Problem, wanted: Iterable[OfferId], samples_per_s: float) -> Entry | None:
    """Return what the cheapest plan with one of the offers costs beyond the best plan, or None if there is none."""
    uncapped = problem.policy.model_copy(update={"max_usd_per_hour": None})
    free = replace(problem, policy=uncapped)
    best = cheapest(free, samples_per_s, _GAP)
    if best is None:
        return None
    offer_id = _nearest(replace(free, require=frozenset(wanted)), samples_per_s, best.solution.objective)
    if offer_id is None:
        return None
    forced = replace(free, require=frozenset([offer_id]))
    found = cheapest(forced, samples_per_s, _GAP)
    if found is None:
        return None
    extra = max(0.0, found.solution.objective - best.solution.objective)
    # Under what is proven of every plan without it, so that the price, when granted, brings it in for certain.
    beaten = best.bound * (1.0 - _HAIR)
    enters_at = _worth(found, beaten)
    if enters_at <= 0:
        given = cheapest(_almost_free(forced), samples_per_s, _GAP)
        enters_at = 0.0 if given is None else _worth(given, beaten)
    return Entry(offer_id, extra, enters_at if enters_at > 0 else None)


def _nearest(forced: Problem, samples_per_s: float, budget_usd_per_hour: float) -> OfferId | None:
    """Return the required offer that comes in first as prices fall, or that costs least extra when none does."""
    if len(forced.require) == 1:
        return min(forced.require)
    found = cheapest(forced, samples_per_s, _GAP)
    if found is not None and _worth(found, budget_usd_per_hour) <= 0:
        given = cheapest(_almost_free(forced), samples_per_s, _GAP)
        if given is not None and given.solution.objective < budget_usd_per_hour and _is_of_one_type(given):
            found = given
    held = {} if found is None else _held(found)
    return max(sorted(held), key=lambda name: held[name], default=None)


def _is_of_one_type(found: Found) -> bool:
    """Does a plan hold one type of the required machines? Of a mix nobody could say at which price which comes in."""
    return len({found.rules.problem.offers[name].instance_type for name in _held(found)}) == 1


def _worth(found: Found, budget_usd_per_hour: float) -> float:
    """Return the mean price of the required machines at which the plan would cost the budget, USD/h."""
    held, offers = _held(found), found.rules.problem.offers
    paid = sum(offers[name].usd_per_hour * count for name, count in held.items())
    return (paid + budget_usd_per_hour - found.solution.objective) / sum(held.values())


def _almost_free(problem: Problem) -> Problem:
    """Return the problem with all required offers at next to nothing; the cheaper of equal ones stays the cheaper."""
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * ALMOST_FREE})
        if offer.id in problem.require
        else offer
        for offer in problem.market.offers
    )
    return replace(problem, market=problem.market.model_copy(update={"offers": offers}))


def _held(found: Found) -> dict[OfferId, int]:
    """Return how many machines of each required offer a solution holds."""
    held: dict[OfferId, int] = {}
    for column, machines in found.rules.rollout:
        held[column.offer_id] = held.get(column.offer_id, 0) + found.solution.count(machines)
    for gang, chosen in found.rules.gangs:
        held[gang.offer_id] = held.get(gang.offer_id, 0) + gang.nodes * found.solution.count(chosen)
    return {name: count for name, count in held.items() if name in found.rules.problem.require and count > 0}
