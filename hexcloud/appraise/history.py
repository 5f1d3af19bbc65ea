"""History: recorded prices of many offers as columns. Rows and offers are made of it only at the planner's door.

All series stand one after the other in flat arrays: series `i` owns the events `starts[i]` to `starts[i + 1]`, sorted
by time, so a price at any moment is a binary search.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.offer import OfferId

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Bools = NDArray[np.bool_]


class Standing(IntEnum):
    """What a recorded event says of an offer."""

    PRICED = 0
    UNPRICED = 1
    """Listed without a price: not for sale."""
    GONE = 2
    """The source no longer lists it."""


class Machine(NamedTuple):
    """What a recording says of an instance type."""

    gpu: str
    gpu_count: float


class Quote(NamedTuple):
    """One offer's price at a moment."""

    usd_per_hour: float | None
    """None: not for sale."""
    since_s: float
    """When the source said so first, seconds since the epoch."""
    proven: bool = True
    """False when the price looks like capacity that does not exist."""


@dataclass(frozen=True, eq=False)
class History:
    """Price changes of many offers, USD/h of the whole machine, seconds since the epoch."""

    ids: tuple[OfferId, ...]
    """One per series, sorted."""
    starts: Ints
    """Shape (series + 1)."""
    at_s: Floats
    usd_per_hour: Floats
    """NaN where the event has no price or none that can be read; the three event arrays have one shape."""
    standing: Codes
    unproven: Bools
    """Where a price was flagged by the gate; never, in a history nobody has judged."""
    is_snapshots: bool = False
    """Did the source look at all offers at once, so that an unchanged price was seen again at every later moment of
    the file? Otherwise each event is news of its own series only."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """Instance type -> its GPUs, where the recording says."""

    @property
    def first_s(self) -> float:
        """Moment of the first event; 0 when there is none."""
        return float(self.at_s.min()) if self.at_s.size else 0.0

    @property
    def last_s(self) -> float:
        """Moment of the last event; 0 when there is none."""
        return float(self.at_s.max()) if self.at_s.size else 0.0

    def series(self, offer_id: OfferId) -> slice:
        """Return where an offer's events stand; an empty slice for an offer nobody recorded."""
        number = self._numbers.get(offer_id)
        return slice(0, 0) if number is None else slice(int(self.starts[number]), int(self.starts[number + 1]))

    def price_at(self, offer_id: OfferId, at_s: float) -> Quote | None:
        """Return an offer's price at a moment; None before its first event, and for an offer nobody recorded."""
        where = self.series(offer_id)
        last = where.start + int(np.searchsorted(self.at_s[where], at_s, side="right")) - 1
        return None if last < where.start else self._quote(last)

    def last_price(self, offer_id: OfferId, at_s: float) -> Quote | None:
        """Return the last price an offer had by a moment, for sale or not since; None when it never had one."""
        where = self.series(offer_id)
        past = int(np.searchsorted(self.at_s[where], at_s, side="right"))
        priced = np.flatnonzero(self.standing[where][:past] == Standing.PRICED)
        return self._quote(where.start + int(priced[-1])) if priced.size else None

    def at(self, at_s: float) -> dict[OfferId, Quote]:
        """Return the price of every offer that had one recorded by a moment."""
        series = np.arange(len(self.ids))
        last = self.last_event(series, np.full(series.shape, at_s))
        return {offer_id: self._quote(int(event)) for offer_id, event in zip(self.ids, last, strict=True) if event >= 0}

    def last_event(self, series: Ints, at_s: Floats) -> Ints:
        """Return, for each pair of a series and a moment, the event then in force; -1 where there is none yet."""
        low, high = self.starts[series].copy(), self.starts[series + 1].copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            past = np.zeros(open_.shape, dtype=bool)
            past[open_] = self.at_s[middle[open_]] <= at_s[open_]
            low = np.where(open_ & past, middle + 1, low)
            high = np.where(open_ & ~past, middle, high)
        return np.where(low > self.starts[series], low - 1, -1)

    def owners(self) -> Ints:
        """Return the series of each event."""
        return np.repeat(np.arange(len(self.ids)), np.diff(self.starts))

    @cached_property
    def _numbers(self) -> dict[OfferId, int]:
        return {offer_id: number for number, offer_id in enumerate(self.ids)}

    def _quote(self, event: int) -> Quote:
        priced = self.standing[event] == Standing.PRICED and np.isfinite(self.usd_per_hour[event])
        price = float(self.usd_per_hour[event]) if priced else None
        return Quote(price, float(self.at_s[event]), not self.unproven[event])


class Events(NamedTuple):
    """Events in any order, as a file has them. `series` counts into `ids`; all arrays have one shape."""

    ids: tuple[OfferId, ...]
    series: Ints
    at_s: Floats
    usd_per_hour: Floats
    standing: Codes


def history_of(
    batches: tuple[Events, ...], is_snapshots: bool = False, machines: Mapping[str, Machine] | None = None
) -> History:
    """Sort events into a history. Of several events of one offer at one moment the last one counts."""
    ids = sorted({offer_id for batch in batches for offer_id in batch.ids})
    place = {offer_id: number for number, offer_id in enumerate(ids)}
    series = [np.array([place[i] for i in batch.ids], dtype=np.int64)[batch.series] for batch in batches]
    owner = np.concatenate([*series, np.empty(0, dtype=np.int64)])
    at_s = np.concatenate([*(batch.at_s for batch in batches), np.empty(0)])
    order = np.lexsort((at_s, owner))
    owner, at_s = owner[order], at_s[order]
    repeated = (owner[1:] == owner[:-1]) & (at_s[1:] == at_s[:-1])
    last = np.append(~repeated, True) if owner.size else np.empty(0, dtype=bool)
    order, owner, at_s = order[last], owner[last], at_s[last]
    return History(
        ids=tuple(ids),
        starts=np.searchsorted(owner, np.arange(len(ids) + 1)),
        at_s=at_s,
        usd_per_hour=np.concatenate([*(batch.usd_per_hour for batch in batches), np.empty(0)])[order],
        standing=np.concatenate([*(batch.standing for batch in batches), np.empty(0, dtype=np.int8)])[order],
        unproven=np.zeros(order.shape, dtype=bool),
        is_snapshots=is_snapshots,
        machines=machines or {},
    )
