"""table: offers and rollout columns as arrays, so that thousands of them are weighed in microseconds.

Money is USD/h, rates are samples/s. A unit is what a column counts: one machine, or the few of a replica.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.offer import Draw, Offer, Tenure
from hexcloud.planner.kinds import Ladder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NO_QUOTA = 0
"""Number of the quota of machines that draw on none."""


class OfferFacts(NamedTuple):
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
    """A quota of each row."""

    quota: Ints
    """Its number, NO_QUOTA for none."""
    units: Floats
    """How much of it one machine takes."""


class Facts:
    """Arrays over the offers of one problem, by their number."""

    def __init__(self, rows: list[OfferFacts]) -> None:
        self.rows = rows
        self.usd_per_hour = self._floats(row.offer.usd_per_hour for row in rows)
        self.start_usd_per_hour = self._floats(row.start_usd_per_hour for row in rows)
        self.availability = self._floats(row.availability for row in rows)
        self.cores = self._floats(row.cores for row in rows)
        self.stock = self._floats(row.stock for row in rows)
        self.training = self._floats(row.training for row in rows)
        self.is_running: Flags = self._floats(row.running for row in rows) > 0
        self.is_required: Flags = self._floats(row.is_required for row in rows) > 0
        self.is_spot: Flags = self._floats(row.offer.tenure is Tenure.SPOT for row in rows) > 0
        # Rent and spread start-up of one more machine; machines that run start for nothing.
        self.price: Floats = self.usd_per_hour + np.where(self.is_running, 0.0, self.start_usd_per_hour)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def domains(self) -> tuple[list[str], Ints]:
        """Names of the failure domains by number, and each offer's number."""
        names = sorted(set(self._domains))
        number = {name: index for index, name in enumerate(names)}
        return names, self._ints(number[name] for name in self._domains)

    @cached_property
    def _domains(self) -> list[str]:
        return [row.offer.domain for row in self.rows]

    @cached_property
    def place(self) -> Ints:
        """Number of the failure domain, zone and tenure: what stands there is interchangeable but for its facts."""
        rows = zip(self._domains, self.rows, strict=True)
        return self._labels((domain, row.offer.zone, row.offer.tenure) for domain, row in rows)

    @cached_property
    def tenured_domain(self) -> Ints:
        """Number of the failure domain and tenure, whatever the zone."""
        rows = zip(self._domains, self.rows, strict=True)
        return self._labels((domain, row.offer.tenure) for domain, row in rows)

    @cached_property
    def quotas(self) -> list[str]:
        """Keys of the quotas that bind, by number; `` is NO_QUOTA."""
        return ["", *sorted({draw.quota for row in self.rows for draw in row.draws})]

    @cached_property
    def draws(self) -> tuple[Draws, ...]:
        """What machines draw on: first of all, second of all, and so on."""
        number = {key: index for index, key in enumerate(self.quotas)}
        most = max((len(row.draws) for row in self.rows), default=0)
        padded = [(*row.draws, *[Draw("", 0.0)] * (most - len(row.draws))) for row in self.rows]
        return tuple(
            Draws(self._ints(number[draw.quota] for draw in draws), self._floats(draw.units for draw in draws))
            for draws in zip(*padded, strict=True)
        )

    def _floats(self, values: Iterable[float]) -> Floats:
        return np.fromiter(values, np.float64, len(self.rows))

    def _ints(self, values: Iterable[int]) -> Ints:
        return np.fromiter(values, np.int64, len(self.rows))

    def _labels(self, labels: Iterable[Hashable]) -> Ints:
        number: dict[Hashable, int] = {}
        return self._ints(number.setdefault(label, len(number)) for label in labels)


class Rungs:
    """The columns of all ladders, end to end."""

    def __init__(self, ladders: tuple[Ladder, ...]) -> None:
        self.columns: Ladder = tuple(chain.from_iterable(ladders))
        self.sizes: Ints = np.fromiter(map(len, ladders), np.int64, len(ladders))
        self.samples_per_s = self._floats("samples_per_s")
        self.generation_s = self._floats("generation_s")
        self.slots = self._floats("replicas") * self._floats("batch")
        self.nodes, self.spread_s = self._floats("nodes"), self._floats("spread_s")
        self.is_single = bool((self.nodes == 1.0).all())
        """Is every unit one machine, as with all but the largest models?"""
        degrees, self.degree = np.unique(self._floats("tp").astype(np.int64), return_inverse=True)
        self.degrees: list[int] = degrees.tolist()
        ends = np.cumsum(self.sizes)
        steps = np.arange(int(self.sizes.max(initial=0)))
        # One line per ladder; what is beyond its end points at the first rung of all and is no part of it.
        self._is_rung: Flags = steps < self.sizes[:, None]
        starts: Ints = ends - self.sizes
        self._lines: Ints = np.where(self._is_rung, starts[:, None] + steps, 0)

    def best(self, among: Flags, *worths: Floats) -> Flags:
        """Return the rungs among some that no other of their ladder is as good as in every worth; of equals the first.

        Units of other numbers of machines differ in price, cores and stock, so they are no rivals. Being beaten is
        transitive, so whoever goes is beaten by one that stays.
        """
        lines = self._lines
        is_in = among[lines] & self._is_rung
        beats = is_in[:, :, None] & is_in[:, None, :]
        if not self.is_single:
            beats &= self.nodes[lines][:, :, None] == self.nodes[lines][:, None, :]
        is_equal = beats.copy()
        for worth in worths:
            own = worth[lines]
            beats &= own[:, :, None] >= own[:, None, :]
            is_equal &= own[:, :, None] == own[:, None, :]
        order = np.arange(lines.shape[1])
        beats &= ~is_equal | (order[:, None] < order)
        best = np.zeros(len(self.columns), np.bool_)
        best[lines[is_in & ~beats.any(axis=1)]] = True
        return best

    def most(self, among: Flags, worth: Floats) -> Floats:
        """Return the largest worth of each ladder's rungs among some; 0 where there is none."""
        most: Floats = np.where(among[self._lines] & self._is_rung, worth[self._lines], 0.0).max(axis=1, initial=0.0)
        return most

    def spread(self, wanted: Flags, ladders: Ints) -> tuple[Ints, Ints]:
        """Return a row for each offer and wanted rung of its ladder: position in `ladders`, and rung. Sorted."""
        kept = np.flatnonzero(wanted)
        bounds = np.r_[0, np.cumsum(self.sizes)]
        first: Ints = np.asarray(np.searchsorted(kept, bounds), np.int64)
        counts = np.diff(first)[ladders]
        offer = np.repeat(np.arange(len(ladders)), counts)
        within = np.arange(len(offer)) - np.repeat(np.cumsum(counts) - counts, counts)
        return offer, kept[first[ladders[offer]] + within]

    def _floats(self, name: str) -> Floats:
        return np.fromiter(map(attrgetter(name), self.columns), np.float64, len(self.columns))


@dataclass(frozen=True)
class Table:
    """Rollout columns as rows, sorted by offer, degree and batch: facts of offers are repeated for each."""

    facts: Facts
    rungs: Rungs
    offer: Ints
    """Numbers of the offers."""
    rung: Ints

    def __len__(self) -> int:
        return len(self.offer)

    @cached_property
    def nodes(self) -> Floats:
        """Machines of a unit."""
        return self.rungs.nodes[self.rung]

    @cached_property
    def samples_per_s(self) -> Floats:
        """Of a unit that always works."""
        return self.rungs.samples_per_s[self.rung]

    @cached_property
    def slots(self) -> Floats:
        """Samples that run at once."""
        return self.rungs.slots[self.rung]

    @cached_property
    def usd_per_hour(self) -> Floats:
        """Rent."""
        return self._of_units(self.facts.usd_per_hour)

    @cached_property
    def price(self) -> Floats:
        """Rent and spread start-up of one more unit."""
        return self._of_units(self.facts.price)

    @cached_property
    def availability(self) -> Floats:
        """Share of time that there is a whole unit."""
        alone = self.facts.availability[self.offer]
        if self.rungs.is_single:
            return alone
        # As `estimate.risk.availability`, which is 1 / (1 + what is missing).
        return np.where(self.nodes == 1.0, alone, 1.0 / (1.0 + self.nodes * (1.0 / alone - 1.0)))

    @cached_property
    def cores(self) -> Floats:
        """Cores left for rewards: of a replica over machines its head's, which alone scores."""
        return self.facts.cores[self.offer]

    @cached_property
    def stock(self) -> Floats:
        """The most units a plan may hold."""
        stock = self.facts.stock[self.offer]
        return stock if self.rungs.is_single else stock // self.nodes

    @cached_property
    def is_spot(self) -> Flags:
        """Machines that may be taken away."""
        return self.facts.is_spot[self.offer]

    @cached_property
    def is_bound(self) -> Flags:
        """Machines that run, or that the plan must hold."""
        return (self.facts.is_running | self.facts.is_required)[self.offer]

    @cached_property
    def domains(self) -> tuple[list[str], Ints]:
        """Names of the failure domains by number, and each row's number."""
        names, numbers = self.facts.domains
        return names, numbers[self.offer]

    @cached_property
    def draws(self) -> tuple[Draws, ...]:
        """Quotas of the rows."""
        return tuple(Draws(draw.quota[self.offer], self._of_units(draw.units)) for draw in self.facts.draws)

    def _of_units(self, of_machines: Floats) -> Floats:
        """Return what units have of something of which each machine of an offer has so much."""
        own = of_machines[self.offer]
        return own if self.rungs.is_single else self.nodes * own
