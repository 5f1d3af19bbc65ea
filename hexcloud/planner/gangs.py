"""gangs: where the trainer could stand and with which gang, as arrays: ten thousand gangs are tried at many paces."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import TrainerColumn
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.table import Facts, Flags, Floats, Ints


@dataclass(frozen=True)
class Site:
    """One cloud, region and zone where a gang could train."""

    anchor: Offer
    """The offer of the site with the best network: distances are measured from it."""
    number: int
    """Its place in the order of names."""


@dataclass(frozen=True, eq=False)
class Able:
    """Some gangs as rows, sorted by offer and nodes."""

    table: "Gangs"
    offer: Ints
    """Numbers of the offers."""
    size: Ints
    """Places in the crews of the offers."""

    def __len__(self) -> int:
        return len(self.offer)

    def __getitem__(self, wanted: Ints | Flags) -> "Able":
        return Able(self.table, self.offer[wanted], self.size[wanted])

    @cached_property
    def rates(self) -> Floats:
        """Samples/s, turns at eta = 0 taken off."""
        return self.table.rates[self.table.crew[self.offer], self.size]

    @cached_property
    def nodes(self) -> Floats:
        """Machines."""
        return self.table.nodes[self.table.crew[self.offer], self.size]

    @cached_property
    def site(self) -> Ints:
        """Numbers of the sites."""
        return self.table.site[self.offer]

    @cached_property
    def usd_per_hour(self) -> Floats:
        """Rent and spread start-up, less what runs already."""
        facts = self.table.facts
        starting = np.maximum(0.0, self.nodes - facts.training[self.offer])
        usd: Floats = self.nodes * facts.usd_per_hour[self.offer] + starting * facts.start_usd_per_hour[self.offer]
        return usd

    @cached_property
    def columns(self) -> tuple[TrainerColumn, ...]:
        """The gangs themselves."""
        return tuple(self.table.column(*row) for row in zip(self.offer.tolist(), self.size.tolist(), strict=True))

    @cached_property
    def taken(self) -> Floats:
        """The most machines of each offer, by number, that one of the gangs takes."""
        taken = np.zeros(len(self.table.facts))
        np.maximum.at(taken, self.offer, self.nodes)
        return taken


class Ranked(NamedTuple):
    """A site with what could train there at one throughput."""

    least_usd_per_hour: float
    """Of one gang."""
    site: Site
    able: Able
    """The smallest gang of each offer that is fast enough: a larger one only costs more in every rule."""

    @property
    def gangs(self) -> tuple[TrainerColumn, ...]:
        """Return the gangs themselves."""
        return self.able.columns


class Gangs:
    """All gangs of a problem."""

    def __init__(self, kinds: Kinds, facts: Facts, duty: float, *, keeps_all: bool = False) -> None:
        """`facts` are of the offers of `kinds`; `duty` is the share of time a gang works.

        `keeps_all` leaves in what a smaller gang of the same offer makes pointless.
        """
        self.facts = facts
        self._keeps_all = keeps_all
        self._crews = kinds.crews
        self._names: list[OfferId] = [row.offer.id for row in facts.rows]
        most = max(map(len, kinds.crews), default=0)
        shape = (len(kinds.crews), most + 1)  # the last of each line stands for `none`
        self.rates, self.nodes = np.full(shape, -np.inf), np.full(shape, np.inf)
        for number, crew in enumerate(kinds.crews):
            self.rates[number, : len(crew)] = [gang.samples_per_s for gang in crew]
            self.nodes[number, : len(crew)] = [gang.nodes for gang in crew]
        self.rates *= duty
        self.crew: Ints = np.fromiter((kinds.of_offers[name][1] for name in self._names), np.int64, len(facts))
        self._trains: Flags = self.nodes[self.crew, 0] <= facts.stock
        self.sites, self.site = self._sites()

    @property
    def all(self) -> Able:
        """Return every gang that there is stock for. Kept, it would be a circle of references."""
        return self._spread(self.nodes < np.inf, np.flatnonzero(self._trains))

    def between(self, low: float, high: float, site: int | None = None) -> Able:
        """Return the gangs that count between two throughputs: each trains more than any smaller one of its offer.

        The smallest that trains the high end is the last; at one throughput it is the only one.
        """
        offers = self._trains if site is None else self._trains & (self.site == site)
        wanted = self.rates >= low
        if not self._keeps_all:
            smaller = np.maximum.accumulate(self.rates, axis=1)
            smaller = np.c_[np.full(len(smaller), -np.inf), smaller[:, :-1]]
            wanted &= (self.rates > smaller) & (smaller < high)
        return self._spread(wanted, np.flatnonzero(offers))

    def ranked(self, samples_per_s: float, budget_usd_per_hour: float) -> list[Ranked]:
        """Return the sites that can train a throughput within a budget, the cheapest gang first."""
        able = self.between(samples_per_s, samples_per_s)
        able = able[able.usd_per_hour <= budget_usd_per_hour]
        able = able[np.argsort(able.site, kind="stable")]
        numbers, starts = np.unique(able.site, return_index=True)
        parts = pairwise([*starts.tolist(), len(able)])
        own = (able[np.arange(start, end)] for start, end in parts)
        ranked = [
            Ranked(float(some.usd_per_hour.min()), self.sites[number], some)
            for number, some in zip(numbers.tolist(), own, strict=True)
        ]
        return sorted(ranked, key=lambda row: row.least_usd_per_hour)

    def most_by_site(self, usd_per_hour: float, usd_per_sample_s: float) -> Floats:
        """Return the most samples/s for a budget at each site, by number: what a gang leaves buys rollout."""
        able = self.all
        able = able[able.usd_per_hour < usd_per_hour]
        most = np.full(len(self.sites), -np.inf)
        bought = (usd_per_hour - able.usd_per_hour) / usd_per_sample_s
        np.maximum.at(most, able.site, np.minimum(able.rates, bought))
        return most

    def column(self, offer: int, size: int) -> TrainerColumn:
        """Return a gang by the numbers of its offer and of its place in the crew."""
        gang = self._crews[int(self.crew[offer])][size]
        return gang.twin(offer_id=self._names[offer])

    def _spread(self, wanted: Flags, offers: Ints) -> Able:
        """Return the wanted gangs of some offers, as far as there is stock for them."""
        crews = self.crew[offers]
        row, size = np.nonzero(wanted[crews] & (self.nodes[crews] <= self.facts.stock[offers][:, None]))
        return Able(self, offers[row], size)

    def _sites(self) -> tuple[tuple[Site, ...], Ints]:
        """Return the sites by name, and each offer's number among them; -1 where nothing trains."""
        anchors: dict[tuple[str, str, str], Offer] = {}
        offers = [row.offer for row in self.facts.rows]
        for index in np.flatnonzero(self._trains).tolist():
            offer = offers[index]
            rival = anchors.setdefault(_site_name(offer), offer)
            anchors[_site_name(offer)] = max(offer, rival, key=lambda one: (one.network_gb_per_s, one.id))
        order = {name: index for index, name in enumerate(sorted(anchors))}
        numbers = (
            order[_site_name(offer)] if trains else -1
            for offer, trains in zip(offers, self._trains.tolist(), strict=True)
        )
        sites = tuple(Site(anchors[name], number) for name, number in order.items())
        return sites, np.fromiter(numbers, np.int64, len(offers))


def _site_name(offer: Offer) -> tuple[str, str, str]:
    return offer.cloud, offer.region, offer.zone or ""
