"""Merge: one believed offer per id. The fresher price wins; at equal age the more specific row, then the dearer one.

A row for a whole region is less specific than rows for its zones. On-demand prices are the same in all zones of a
region, so a fresher region-wide price renews them; a region-wide spot price says nothing about a zone. Rows for zones
make the region-wide row of that machine pointless. Invariant: merge(merge(x)) == merge(x), in any order of x.
"""

from collections import defaultdict
from collections.abc import Iterable

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import Offer, OfferId, Tenure

_Pool = tuple[str, str, str, Tenure]


class Lost(Frozen):
    """A believed offer that lost to another one: kept as evidence."""

    offer: Offer
    reason: str


def merge(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return offers with unique ids, sorted by id."""
    best = _best(offers)
    region_wide = {_pool(offer): offer for offer in best.values() if offer.zone is None}
    zoned = {_pool(offer) for offer in best.values() if offer.zone is not None}
    kept = (offer for offer in best.values() if offer.zone is not None or _pool(offer) not in zoned)
    return tuple(sorted((_renew(offer, region_wide) for offer in kept), key=lambda offer: offer.id))


def evidence(offers: Iterable[Offer]) -> dict[OfferId, tuple[Lost, ...]]:
    """Return, for each merged offer that had rivals, those that lost to it and why, the strongest first."""
    every = list({offer.model_dump_json(): offer for offer in offers}.values())
    rivals: dict[OfferId, list[Offer]] = defaultdict(list)
    wide: dict[_Pool, list[Offer]] = defaultdict(list)
    for offer in every:
        rivals[offer.id].append(offer)
        if offer.zone is None:
            wide[_pool(offer)].append(offer)
    found = {}
    for winner in merge(every):
        others = rivals[winner.id] + (wide[_pool(winner)] if winner.zone is not None else [])
        lost = sorted((other for other in others if not _is_price_of(winner, other)), key=_rank, reverse=True)
        if lost:
            found[winner.id] = tuple(Lost(offer=other, reason=_why(other, winner)) for other in lost)
    return found


def _best(offers: Iterable[Offer]) -> dict[OfferId, Offer]:
    best: dict[OfferId, Offer] = {}
    for offer in offers:
        rival = best.get(offer.id)
        if rival is None or _rank(offer) > _rank(rival):
            best[offer.id] = offer
    return best


def _rank(offer: Offer) -> tuple[object, ...]:
    """Order offers of one id; the tail only makes the order total, so that input order never matters."""
    return (offer.as_of, offer.usd_per_hour, not offer.proven, offer.source, offer.model_dump_json())


def _pool(offer: Offer) -> _Pool:
    return (offer.cloud, offer.region, offer.instance_type, offer.tenure)


def _renew(offer: Offer, region_wide: dict[_Pool, Offer]) -> Offer:
    fresher = region_wide.get(_pool(offer))
    if fresher is None or offer.tenure is Tenure.SPOT or fresher.as_of <= offer.as_of:
        return offer
    price = {
        "usd_per_hour": fresher.usd_per_hour,
        "currency": fresher.currency,
        "usd_per_unit": fresher.usd_per_unit,
        "as_of": fresher.as_of,
        "source": fresher.source,
    }
    return offer.model_copy(update=price)


def _is_price_of(winner: Offer, other: Offer) -> bool:
    """Is the winner's price this one's? A renewed offer has its price from the region-wide row."""
    return (winner.source, winner.as_of, winner.usd_per_hour) == (other.source, other.as_of, other.usd_per_hour)


def _why(loser: Offer, winner: Offer) -> str:
    if loser.as_of < winner.as_of:
        return f"older than what {winner.source} says ({_day(winner)})"
    if loser.zone is None and winner.zone is not None:
        return f"speaks for the whole region; {winner.source} lists the zone"
    if loser.usd_per_hour < winner.usd_per_hour:
        return f"as old as what {winner.source} says, and cheaper: the dearer of two is believed"
    return f"says the same as {winner.source}"


def _day(offer: Offer) -> str:
    return f"{offer.as_of:%Y-%m-%d %H:%M}"
