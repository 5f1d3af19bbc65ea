"""Prices: a market whose offers change price at known moments, and what a machine truly costs in it."""

import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.simulator.faults import Faults

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class PriceStep:
    """From `at_s` (run clock) on, an offer costs this much."""

    offer_id: OfferId
    at_s: float
    usd_per_hour: float


class SimMarket:
    """Implements ports.MarketSource over a market and price steps."""

    def __init__(self, base: Market, steps: Iterable[PriceStep] = (), faults: Faults | None = None) -> None:
        self._base = base
        self._faults = faults or Faults()
        self._paths: dict[OfferId, list[PriceStep]] = {
            offer.id: [PriceStep(offer.id, 0.0, offer.usd_per_hour)] for offer in base.offers
        }
        for step in sorted(steps, key=lambda step: step.at_s):
            self._paths[step.offer_id].append(step)

    def market(self, now_s: float) -> Market:
        """Return the market with the prices of this moment."""
        with self._faults.around("market"):
            offers = tuple(
                offer.model_copy(update={"usd_per_hour": self.price(offer.id, now_s)}) for offer in self._base.offers
            )
            return self._base.model_copy(update={"offers": offers})

    def price(self, offer_id: OfferId, at_s: float) -> float:
        """Return USD per hour at a moment."""
        path = self._paths[offer_id]
        return path[bisect_right(path, at_s, key=lambda step: step.at_s) - 1].usd_per_hour

    def usd(self, offer_id: OfferId, from_s: float, to_s: float) -> float:
        """Return what one machine costs from one moment to another: the exact integral of its price."""
        cuts = [from_s, *(step.at_s for step in self._paths[offer_id] if from_s < step.at_s < to_s), to_s]
        return sum(self.price(offer_id, start) * (end - start) / SECONDS_PER_HOUR for start, end in pairwise(cuts))


def spot_walk(market: Market, rng: random.Random, start_s: float, hours: float, every_s: float) -> list[PriceStep]:
    """Return random price steps of all spot offers: up or down by up to 15 %, never over the on-demand price."""
    steps = []
    for offer in market.offers:
        if offer.tenure is not Tenure.SPOT:
            continue
        price, cap = offer.usd_per_hour, _on_demand(offer, market)
        for turn in range(1, int(hours * SECONDS_PER_HOUR / every_s) + 1):
            price = min(cap, max(0.3 * offer.usd_per_hour, price * rng.uniform(0.85, 1.15)))
            steps.append(PriceStep(offer.id, start_s + turn * every_s, price))
    return steps


def _on_demand(spot: Offer, market: Market) -> float:
    same = (
        offer.usd_per_hour
        for offer in market.offers
        if offer.tenure is Tenure.ON_DEMAND
        and (offer.cloud, offer.region, offer.instance_type) == (spot.cloud, spot.region, spot.instance_type)
    )
    return max(same, default=2 * spot.usd_per_hour)
