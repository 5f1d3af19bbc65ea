"""table: the rollout columns of a problem as arrays, so that thousands of them are weighed in microseconds.

Row i of every array is `problem.rollout[i]`; facts of offers are repeated for each of their columns.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.offer import Draw, Offer, OfferId, Tenure
from hexcloud.domain.plan import RolloutColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NO_QUOTA = 0
"""Number of the quota of machines that draw on none."""


@dataclass(frozen=True)
class OfferFacts:
    """What the planner has to know of one offer beside the offer itself."""

    offer: Offer
    stock: int
    running: int
    """Rollout machines that run now."""
    training: int
    """Trainer machines that run now."""
    start_usd_per_hour: float
    """Start-up of one machine, spread over the horizon."""
    availability: float
    cores: float
    """vCPUs of one machine that are left for rewards."""
    is_required: bool
    draws: tuple[Draw, ...] = ()
    """What one machine takes of the quotas that bind."""


class Draws(NamedTuple):
    """A quota of each column."""

    quota: Ints
    """Its number, NO_QUOTA for none."""
    units: Floats
    """How much of it one machine takes."""


class Table:
    """Arrays of one problem's rollout columns. Money is USD/h, rates are samples/s of one machine."""

    def __init__(self, columns: tuple[RolloutColumn, ...], facts: Mapping[OfferId, OfferFacts]) -> None:
        names = list(facts)
        rows = list(facts.values())
        number = {name: index for index, name in enumerate(names)}
        self.offer: Ints = np.fromiter((number[one.offer_id] for one in columns), np.int64, len(columns))
        self.samples_per_s = self._of_columns(map(attrgetter("samples_per_s"), columns))
        self.generation_s = self._of_columns(map(attrgetter("generation_s"), columns))
        self.tp: Ints = np.fromiter(map(attrgetter("tp"), columns), np.int64, len(columns))
        self.slots = self._of_columns(map(attrgetter("replicas"), columns)) * self._of_columns(
            map(attrgetter("batch"), columns)
        )
        self.usd_per_hour = self._of_offers(row.offer.usd_per_hour for row in rows)
        self.start_usd_per_hour = self._of_offers(row.start_usd_per_hour for row in rows)
        self.availability = self._of_offers(row.availability for row in rows)
        self.cores = self._of_offers(row.cores for row in rows)
        self.stock = self._of_offers(row.stock for row in rows)
        self.is_running: Flags = self._of_offers(row.running for row in rows) > 0
        self.is_required: Flags = self._of_offers(row.is_required for row in rows) > 0
        self.is_spot: Flags = self._of_offers(row.offer.tenure is Tenure.SPOT for row in rows) > 0
        self._rows = rows

    def __len__(self) -> int:
        return len(self.offer)

    @cached_property
    def degrees(self) -> tuple[list[int], Ints]:
        """Different tensor-parallel degrees, and the number of each column's."""
        degrees, numbers = np.unique(self.tp, return_inverse=True)
        return degrees.tolist(), numbers

    @cached_property
    def price(self) -> Floats:
        """Rent and spread start-up of one more machine; machines that run start for nothing."""
        price: Floats = self.usd_per_hour + np.where(self.is_running, 0.0, self.start_usd_per_hour)
        return price

    @cached_property
    def domain(self) -> Ints:
        """Number of the failure domain."""
        return self.domains[1]

    @cached_property
    def domains(self) -> tuple[list[str], Ints]:
        """Names of the failure domains by number, and each column's number."""
        names = sorted(set(self._domains))
        number = {name: index for index, name in enumerate(names)}
        return names, self._numbers(number[name] for name in self._domains)

    @cached_property
    def _domains(self) -> list[str]:
        return [row.offer.domain for row in self._rows]

    @cached_property
    def place(self) -> Ints:
        """Number of the failure domain, zone and tenure: what stands there is interchangeable but for its facts."""
        rows = zip(self._domains, self._rows, strict=True)
        return self._labels((domain, row.offer.zone, row.offer.tenure) for domain, row in rows)

    @cached_property
    def tenured_domain(self) -> Ints:
        """Number of the failure domain and tenure, whatever the zone."""
        rows = zip(self._domains, self._rows, strict=True)
        return self._labels((domain, row.offer.tenure) for domain, row in rows)

    @cached_property
    def quotas(self) -> list[str]:
        """Keys of the quotas that bind, by number; `` is NO_QUOTA."""
        return ["", *sorted({draw.quota for row in self._rows for draw in row.draws})]

    @cached_property
    def draws(self) -> tuple["Draws", ...]:
        """What machines draw on: first of all, second of all, and so on."""
        number = {key: index for index, key in enumerate(self.quotas)}
        most = max((len(row.draws) for row in self._rows), default=0)
        padded = [(*row.draws, *[Draw("", 0.0)] * (most - len(row.draws))) for row in self._rows]
        return tuple(
            Draws(self._numbers(number[draw.quota] for draw in draws), self._of_offers(draw.units for draw in draws))
            for draws in zip(*padded, strict=True)
        )

    def _of_columns(self, values: Iterable[float]) -> Floats:
        return np.fromiter(values, np.float64, len(self.offer))

    def _of_offers(self, values: Iterable[float]) -> Floats:
        per_offer: Floats = np.fromiter(values, np.float64)
        return per_offer[self.offer]

    def _numbers(self, values: Iterable[int]) -> Ints:
        per_offer: Ints = np.fromiter(values, np.int64)
        return per_offer[self.offer]

    def _labels(self, labels: Iterable[Hashable]) -> Ints:
        number: dict[Hashable, int] = {}
        return self._numbers(number.setdefault(label, len(number)) for label in labels)
