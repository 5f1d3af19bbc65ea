"""Known: what the gate may compare a row with. None of it comes from the rows under judgement."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from hexcloud.appraise.limits import AGREES
from hexcloud.appraise.units import usd_per_hour
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held, Voucher
from hexcloud.domain.row import Row


class Seen(Frozen):
    """What another source says of a machine, believed there or not: a possible witness for a row under doubt."""

    cloud: str
    region: str
    instance_type: str
    tenure: str
    gpu: str = ""
    gpu_count: float
    usd_per_hour: float
    lineage: str
    is_believed: bool = True
    """False for a row in quarantine there: it may confirm a count, but no price."""
    as_of: datetime | None = None
    """When it was true; None: nobody knows, and it is taken for as young as it needs to be."""


class Scored(NamedTuple):
    """A spot placement score and the ISO time at which it was given."""

    score: int
    as_of: str


class Known(Frozen):
    """Accepted history, facts and witnesses."""

    usual_usd_per_gpu_hour: Mapping[str, float] = {}
    """GPU -> usual on-demand price of one, over clouds: see `usual`."""
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
    vouched: tuple[Voucher, ...] = ()
    """Prices freed by the user or by a bill; see `in_force`."""
    scores: Mapping[tuple[str, OfferId], Scored] = {}
    """(source, offer) -> the last spot placement score."""
    latest: datetime | None = None
    """No price can be true after this moment; None: nobody knows what time it is."""
    proven: frozenset[OfferId] = frozenset()
    """Offers of which a launch has succeeded: their capacity is a fact, whatever their price looks like."""

    def vouches(self, row: Row, rule: str) -> bool:
        """Did the user or a bill confirm about this price of the offer against this doubt?"""
        return any(
            self._is_of(voucher, row) or self._paid(voucher, row)
            for voucher in self.vouched
            if (voucher.offer_id, voucher.rule) == (row.id, rule)
        )

    def _is_of(self, voucher: Voucher, row: Row) -> bool:
        """Is it the listing that was shown: same source, same currency, about the same price?"""
        same = (voucher.source, voucher.currency) == (row.source, row.currency)
        return same and voucher.list_price is not None and agree(voucher.list_price, row.list_price)

    def _paid(self, voucher: Voucher, row: Row) -> bool:
        """Is it about what the bill said, whoever lists it?"""
        usd = usd_per_hour(row, self.usd_per_unit)
        return voucher.usd_per_hour is not None and usd is not None and agree(voucher.usd_per_hour, usd)


def in_force(vouchers: Iterable[Voucher]) -> tuple[Voucher, ...]:
    """Return the words that nobody has taken back since. `vouchers`: oldest first."""
    kept: list[Voucher] = []
    for voucher in vouchers:
        if voucher.takes_back:
            kept = [one for one in kept if one.offer_id != voucher.offer_id]
        else:
            kept.append(voucher)
    return tuple(kept)


def agree(one: float, other: float) -> bool:
    """Do two prices differ by at most AGREES of the larger? What is no positive number agrees with nobody."""
    return one > 0 and 0 < other < math.inf and (1 - AGREES) * one <= other and (1 - AGREES) * other <= one
