"""Pools: interruption rate, start-up time and depth of each offer, from what became of our own machines. Pure.

Every figure starts at the calibration's prior, which counts as if it were a stated number of hours or launches of ours,
and moves to what was seen as that grows. Of how deep a pool is nobody has a prior.
"""

from collections import defaultdict
from collections.abc import Iterable

from hexcloud.domain.calibration import Calibration
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.stay import End, Stay

PRIOR_MACHINE_H = 20.0
"""Weight of the prior rate, machine-hours: about one interruption's worth at the bundled 0.05 per hour."""
PRIOR_LAUNCHES = 4.0
"""Weight of the prior start-up time, launches."""
DEPTH_AGE_S = 3600.0
"""A refusal tells how deep a pool is for this long: in 2023 spot V100s were gone for 0.8 to 3.6 h on average."""


def with_experience(
    offers: Iterable[Offer], stays: Iterable[Stay], calibration: Calibration, now_s: float
) -> tuple[Offer, ...]:
    """Return the offers, in their order, with what is known of their pools. A pool without a stay is left as it is."""
    by_pool: dict[OfferId, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_pool[stay.offer_id].append(stay)
    return tuple(
        _learned(offer, by_pool[offer.id], calibration, now_s) if offer.id in by_pool else offer for offer in offers
    )


def proven_pools(stays: Iterable[Stay]) -> frozenset[OfferId]:
    """Return the pools in which a launch of ours has succeeded: their capacity is a fact."""
    return frozenset(stay.offer_id for stay in stays if stay.ready_at_s is not None)


def interruptions_per_hour(stays: Iterable[Stay], prior_per_h: float) -> float | None:
    """Return how often a machine is taken away per hour of work; None when none has worked.

    Posterior mean of a Poisson rate under a Gamma prior of mean `prior_per_h` and weight PRIOR_MACHINE_H:
    (prior * weight + taken) / (weight + hours).
    """
    worked = [stay for stay in stays if stay.ready_at_s is not None]
    if not worked:
        return None
    taken = sum(stay.end is End.TAKEN for stay in worked)
    return (prior_per_h * PRIOR_MACHINE_H + taken) / (PRIOR_MACHINE_H + sum(stay.worked_h for stay in worked))


def startup_s(stays: Iterable[Stay], prior_s: float) -> float | None:
    """Return seconds from the request to the first heartbeat; None when there was none.

    Mean of the launches that succeeded and of PRIOR_LAUNCHES launches that took `prior_s`.
    """
    took = [max(0.0, stay.ready_at_s - stay.asked_at_s) for stay in stays if stay.ready_at_s is not None]
    return (prior_s * PRIOR_LAUNCHES + sum(took)) / (PRIOR_LAUNCHES + len(took)) if took else None


def depth(stays: Iterable[Stay], now_s: float) -> int | None:
    """Return how many machines a pool has for us: what we held when it last refused, or more if it gave more since.

    None when it did not refuse within DEPTH_AGE_S: nobody knows.
    """
    every = list(stays)
    fresh = [stay.until_s for stay in every if stay.end is End.REFUSED and now_s - stay.until_s < DEPTH_AGE_S]
    if not fresh:
        return None
    last = max(fresh)
    since = [stay.asked_at_s for stay in every if stay.end is not End.REFUSED and stay.asked_at_s > last]
    return max(_held(every, at_s) for at_s in [last, *since])


def _held(stays: Iterable[Stay], at_s: float) -> int:
    return sum(
        stay.end is not End.REFUSED
        and stay.asked_at_s <= at_s
        and (at_s < stay.until_s or (stay.end is None and at_s == stay.until_s))
        for stay in stays
    )


def _learned(offer: Offer, stays: list[Stay], calibration: Calibration, now_s: float) -> Offer:
    most = depth(stays, now_s)
    limits = [limit for limit in (offer.stock, most) if limit is not None]
    prior_per_h = calibration.spot_interruptions_per_hour
    learned = {
        "interruptions_per_hour": interruptions_per_hour(stays, prior_per_h) if offer.tenure is Tenure.SPOT else None,
        "startup_s": startup_s(stays, calibration.startup_s),
        "stock": min(limits, default=None),
        "proven": offer.id in proven_pools(stays) or None,
    }
    return offer.model_copy(update={field: value for field, value in learned.items() if value is not None})
