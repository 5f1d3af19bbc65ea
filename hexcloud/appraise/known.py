"""Known: what the gate may compare a row with. None of it comes from the rows under judgement."""

from collections.abc import Mapping
from datetime import datetime

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held

EVERY_RULE = "*"


class Seen(Frozen):
    """What another source says of a machine, believed there or not: a possible witness for a row under doubt."""

    cloud: str
    region: str
    instance_type: str
    tenure: str
    gpu_count: float
    usd_per_hour: float
    lineage: str
    is_believed: bool = True
    """False for a row in quarantine there: it may confirm a twin, but no spot price is held against it."""


class Known(Frozen):
    """Accepted history, facts and witnesses."""

    usual_usd_per_gpu_hour: Mapping[str, float] = {}
    """GPU -> usual on-demand price of one, over clouds, from accepted history (`catalogs/usual.yaml` at first)."""
    usd_per_unit: Mapping[str, float] = {"USD": 1.0}
    """Currency -> USD for one unit. A price in any other currency is not believed."""
    odd_counts: Mapping[str, float] = {}
    """Instance type -> number of accelerators, where a published machine has neither 1, 2, 4, 8 nor 16."""
    last: Mapping[tuple[str, OfferId], tuple[float, str]] = {}
    """(source, offer) -> (last accepted list price per hour and machine, currency)."""
    held: tuple[Held, ...] = ()
    """Rows in quarantine since an earlier snapshot."""
    seen: tuple[Seen, ...] = ()
    """What other sources say."""
    vouched: frozenset[tuple[OfferId, str]] = frozenset()
    """(offer, rule) freed by the user or by a bill; rule `*` frees every doubt that can be freed."""
    latest: datetime | None = None
    """No price can be true after this moment; None: nobody knows what time it is."""
    proven: frozenset[OfferId] = frozenset()
    """Offers of which a launch has succeeded: their capacity is a fact, whatever their price looks like."""

    def vouches(self, offer_id: OfferId, rule: str) -> bool:
        """Did the user or a bill confirm the offer against this doubt?"""
        return (offer_id, rule) in self.vouched or (offer_id, EVERY_RULE) in self.vouched
