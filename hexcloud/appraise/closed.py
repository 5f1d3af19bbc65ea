"""Closed: offers that are no longer for sale, because a later and complete answer for their region does not list them.

Only the cloud itself can say so; a file that names one machine says nothing of the others. A spot price is a zone's
own, so the zone must be listed, and an older price for the whole region is worth nothing beside zones. An on-demand
price is the region's, so any zone will do. What is listed under doubt is listed: there the older price stands.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.prices import Refresh
from hexcloud.domain.row import Row

_Region = tuple[str, str]
_Machine = tuple[str, str, str]


class _Answer(NamedTuple):
    """A complete answer for a region."""

    at_s: float
    source: str


class Closed:
    """What the last complete answer of each region lists."""

    def __init__(self, refreshes: Iterable[Refresh], listed: Iterable[Row]) -> None:
        """Take how refreshes went, and the rows of every source's last answers, believed or not."""
        self._answers: dict[_Region, _Answer] = {}
        for one in refreshes:
            if one.complete and one.good_s is not None:
                answer, where = _Answer(one.good_s, one.source), (one.cloud, one.region)
                self._answers[where] = max(answer, self._answers.get(where, answer))
        self._pools: dict[_Region, set[OfferId]] = defaultdict(set)
        self._on_demand: set[_Machine] = set()
        for row in listed:
            answered = self._answers.get((row.cloud, row.region))
            if answered is not None and answered.source == row.source:
                self._pools[row.cloud, row.region].add(row.id)
                if row.tenure == Tenure.ON_DEMAND:
                    self._on_demand.add((row.cloud, row.region, row.instance_type))

    def by(self, offer: Offer) -> str:
        """Return the source by whose word an offer is no longer for sale; empty when it is."""
        where = (offer.cloud, offer.region)
        answer = self._answers.get(where)
        if answer is None or offer.as_of.timestamp() >= answer.at_s:
            return ""
        if offer.tenure is Tenure.SPOT:
            is_listed = offer.id in self._pools[where]
        else:
            is_listed = (*where, offer.instance_type) in self._on_demand
        return "" if is_listed else answer.source
