"""Merge: one believed offer per id. The fresher price wins; at equal age the more specific row, then the dearer one.

A row for a whole region is less specific than rows for its zones. On-demand prices are the same in all zones of a
region, so a fresher region-wide price renews them; a region-wide spot price says nothing about a zone. Rows for zones
make the region-wide row of that machine pointless. Invariant: merge(merge(x)) == merge(x), in any order of x.
"""

from collections.abc import Iterable

from hexcloud.domain.offer import Offer, OfferId, Tenure

_Pool = tuple[str, str, str, Tenure]


def merge(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return offers with unique ids, sorted by id."""
    best: dict[OfferId, Offer] = {}
    for offer in offers:
        rival = best.get(offer.id)
        if rival is None or _rank(offer) > _rank(rival):
            best[offer.id] = offer
    region_wide = {_pool(offer): offer for offer in best.values() if offer.zone is None}
    zoned = {_pool(offer) for offer in best.values() if offer.zone is not None}
    kept = (offer for offer in best.values() if offer.zone is not None or _pool(offer) not in zoned)
    return tuple(sorted((_renew(offer, region_wide) for offer in kept), key=lambda offer: offer.id))


def _rank(offer: Offer) -> tuple[object, ...]:
    """Order offers of one id; the tail only makes the order total, so that input order never matters."""
    return (offer.as_of, offer.usd_per_hour, not offer.proven, offer.source, offer.model_dump_json())


def _pool(offer: Offer) -> _Pool:
    return (offer.cloud, offer.region, offer.instance_type, offer.tenure)


def _renew(offer: Offer, region_wide: dict[_Pool, Offer]) -> Offer:
    fresher = region_wide.get(_pool(offer))
    if fresher is None or offer.tenure is Tenure.SPOT or fresher.as_of <= offer.as_of:
        return offer
    price = {"usd_per_hour": fresher.usd_per_hour, "as_of": fresher.as_of, "source": fresher.source}
    return offer.model_copy(update=price)
