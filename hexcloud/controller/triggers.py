"""Triggers: what makes a re-plan worth a thought. Whether the plan then changes is the judge's business."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import OfferId

PRICE_INDEPENDENT_RULES = frozenset({"memory", "disk", "region", "cloud", "gpu", "tenure", "gpu_facts", "bf16"})
"""Screening rules that no price change lifts."""


class ListPrice(NamedTuple):
    """What an offer lists: a new exchange rate changes what we pay, and is no shift of this."""

    per_hour: float
    """Whole machine, in `currency`."""
    currency: str


@dataclass(frozen=True)
class PriceShift:
    """An offer whose list price left the band around its value at the last re-plan."""

    offer_id: OfferId
    before: float
    """USD per hour, at the exchange rate of now."""
    after: float
    is_ours: bool

    def __str__(self) -> str:
        share = self.after / self.before - 1
        return f"{self.offer_id} {self.before:.2f} -> {self.after:.2f} USD/h ({share:+.0%})"


def list_prices(market: Market) -> dict[OfferId, ListPrice]:
    """Return what every offer lists now."""
    return {offer.id: ListPrice(offer.list_price, offer.currency) for offer in market.offers}


def price_shifts(
    baseline: Mapping[OfferId, ListPrice],
    market: Market,
    ours: frozenset[OfferId],
    unusable: frozenset[OfferId],
    hysteresis: float,
) -> tuple[PriceShift, ...]:
    """Return offers that moved by more than the hysteresis: ours up or down, others down (dearer ones change nothing).

    An offer that was not listed at the last re-plan counts as a shift from infinity only by being new; it is left to
    the schedule, since its price has no plan-time value to compare with. So is one that changed its currency.
    """
    shifts = []
    for offer in market.offers:
        before = baseline.get(offer.id)
        is_ours = offer.id in ours
        if before is None or before.currency != offer.currency or (offer.id in unusable and not is_ours):
            continue
        change = offer.list_price / before.per_hour - 1
        if change < -hysteresis or (is_ours and change > hysteresis):
            shifts.append(PriceShift(offer.id, before.per_hour * offer.usd_per_unit, offer.usd_per_hour, is_ours))
    return tuple(shifts)


def unusable_offers(rejections: tuple[Rejection, ...]) -> frozenset[OfferId]:
    """Return the offers that no price makes useful to this workload and policy."""
    return frozenset(row.offer_id for row in rejections if row.rule in PRICE_INDEPENDENT_RULES)
