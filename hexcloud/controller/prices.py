"""What a machine costs now, and what it may cost at most: the figures that ledger and budget share."""

from collections.abc import Mapping
from dataclasses import dataclass

from hexcloud.domain.fleet import DEFAULT_DISK_GIB
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId, Tenure

HEADROOM = 1.25
"""Assumed: no list price rises by more than a quarter while one spend lease lasts (they step rarely, mostly down)."""
SPOT_HEADROOM = 2.0
"""Assumed for spot that is not listed on demand, whose price would cap it."""
DISK_USD_PER_GB_MONTH = {"aws": 0.08, "gcp": 0.10, "azure": 0.095}
"""List prices of gp3 (us-east-1), pd-balanced (us-central1) and Standard SSD; other clouds' prices include the disk."""
FAST_DISK_USD_PER_MONTH = {"aws": 33.0}
"""What a disk larger than the default costs beside its size, as it is a fast one (`sky_task`): gp3's 4,000 IOPS
at 0.005 and 312 MB/s at 0.04 beyond what is free (us-east-1)."""
HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Prices:
    """Prices of one moment; offers that the market no longer lists keep their last known price."""

    market: Market
    last: Mapping[OfferId, float]

    def compute(self, offer_id: OfferId) -> float:
        """Return the rent, USD per hour. Raises KeyError for an offer that was never listed."""
        offer = self.market.offer(offer_id)
        return offer.usd_per_hour if offer else self.last[offer_id]

    def ceiling(self, offer_id: OfferId, disk_gib: int = DEFAULT_DISK_GIB) -> float:
        """Return rent and disk at the highest price to expect within minutes, USD per hour."""
        return self.rent_ceiling(offer_id) + disk_usd_per_hour(offer_id, disk_gib)

    def rent_ceiling(self, offer_id: OfferId) -> float:
        """Return the highest rent to expect within minutes, USD per hour: for spot, what on demand costs."""
        rent, offer = self.compute(offer_id), self.market.offer(offer_id)
        if offer and offer.tenure is Tenure.SPOT:
            return max(rent, self._spot_cap(offer))
        return rent * HEADROOM

    def _spot_cap(self, spot: Offer) -> float:
        same = (
            offer.usd_per_hour
            for offer in self.market.offers
            if offer.tenure is Tenure.ON_DEMAND
            and (offer.cloud, offer.region, offer.instance_type) == (spot.cloud, spot.region, spot.instance_type)
        )
        return max(same, default=spot.usd_per_hour * SPOT_HEADROOM)


def disk_usd_per_hour(offer_id: OfferId, disk_gib: int = DEFAULT_DISK_GIB) -> float:
    """Return what the boot disk of a machine costs, USD per hour; 0 where the rent includes it."""
    cloud = offer_id.split("/", 1)[0]
    fast = FAST_DISK_USD_PER_MONTH.get(cloud, 0.0) if disk_gib > DEFAULT_DISK_GIB else 0.0
    return (disk_gib * DISK_USD_PER_GB_MONTH.get(cloud, 0.0) + fast) / HOURS_PER_MONTH
