"""Triggers: what makes a re-plan worth a thought. Whether the plan then changes is the judge's business."""

from collections.abc import Mapping
from dataclasses import dataclass

from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import OfferId

PRICE_INDEPENDENT_RULES = frozenset({"memory", "region", "cloud", "gpu", "tenure", "gpu_facts", "bf16"})
"""Screening rules that no price change lifts."""


@dataclass(frozen=True)
class PriceShift:
    """An offer whose price left the band around its value at the last re-plan."""

    offer_id: OfferId
    before: float
    """USD per hour."""
    after: float
    is_ours: bool

    def __str__(self) -> str:
        share = self.after / self.before - 1
        return f"{self.offer_id} {self.before:.2f} -> {self.after:.2f} USD/h ({share:+.0%})"


def price_shifts(
    baseline: Mapping[OfferId, float],
    market: Market,
    ours: frozenset[OfferId],
    unusable: frozenset[OfferId],
    hysteresis: float,
) -> tuple[PriceShift, ...]:
    """Return offers that moved by more than the hysteresis: ours up or down, others down (dearer ones change nothing).

    An offer that was not listed at the last re-plan counts as a shift from infinity only by being new; it is left to
    the schedule, since its price has no plan-time value to compare with.
    """
    shifts = []
    for offer in market.offers:
        before = baseline.get(offer.id)
        is_ours = offer.id in ours
        if before is None or (offer.id in unusable and not is_ours):
            continue
        change = offer.usd_per_hour / before - 1
        if change < -hysteresis or (is_ours and change > hysteresis):
            shifts.append(PriceShift(offer.id, before, offer.usd_per_hour, is_ours))
    return tuple(shifts)


def unusable_offers(rejections: tuple[Rejection, ...]) -> frozenset[OfferId]:
    """Return the offers that no price makes useful to this workload and policy."""
    return frozenset(row.offer_id for row in rejections if row.rule in PRICE_INDEPENDENT_RULES)
