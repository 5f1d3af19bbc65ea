"""needs: what a plan asks of the accounts it is rented with."""

from collections import Counter, defaultdict

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.plan import ExecutionPlan


class CloudNeeds(Frozen):
    """Machines, regions and quota of a plan."""

    machines: tuple[str, ...]
    """For people: `2 x aws/us-east-1/use1-az1/g5.xlarge/spot`."""
    regions: tuple[str, ...]
    types: dict[str, str]
    """Region -> the dearest machine of the plan there: what the account must be allowed to start."""
    quota_units: dict[str, float]
    """Quota key -> units that the whole plan takes, in the cloud's own unit."""


def needs_of(plan: ExecutionPlan, market: Market) -> CloudNeeds:
    """Return what a plan made from a market needs."""
    counts = Counter(slot.offer_id for slot in plan.placement.slots)
    offers = {offer.id: offer for offer in market.offers if offer.id in counts}
    units: dict[str, float] = defaultdict(float)
    for name, offer in sorted(offers.items()):
        for draw in offer.draws():
            units[draw.quota] += counts[name] * draw.units
    by_price = sorted(offers.values(), key=lambda offer: (offer.usd_per_hour, offer.id))
    return CloudNeeds(
        machines=tuple(f"{count} x {name}" for name, count in sorted(counts.items())),
        regions=tuple(sorted({offer.region for offer in offers.values()})),
        types={offer.region: offer.instance_type for offer in by_price},
        quota_units=dict(sorted(units.items())),
    )
