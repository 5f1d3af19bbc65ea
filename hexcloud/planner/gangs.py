"""gangs: where the trainer could stand and with which gang, as arrays: ten thousand gangs are tried at many paces."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import TrainerColumn
from hexcloud.planner.table import Floats, Ints, OfferFacts


@dataclass(frozen=True)
class Site:
    """One cloud, region and zone with the gangs that could train there."""

    anchor: Offer
    """The offer of the site with the best network: distances are measured from it."""
    gangs: tuple[TrainerColumn, ...]


class Ranked(NamedTuple):
    """A site with what could train there at one throughput."""

    least_usd_per_hour: float
    """Of one gang."""
    site: Site
    gangs: tuple[TrainerColumn, ...]
    """The cheapest gang of each offer that is fast enough: a larger one only costs more in every rule."""


class Gangs:
    """All gangs of a problem."""

    def __init__(self, gangs: tuple[TrainerColumn, ...], facts: Mapping[OfferId, OfferFacts], duty: float) -> None:
        number = {name: index for index, name in enumerate(facts)}
        rows = list(facts.values())
        self.all = gangs
        self.offer: Ints = np.fromiter((number[gang.offer_id] for gang in gangs), np.int64, len(gangs))
        self.rates = duty * self._floats(gang.samples_per_s for gang in gangs)
        nodes = self._floats(gang.nodes for gang in gangs)
        starting = np.maximum(0.0, nodes - self._of_offers(row.training for row in rows))
        self.usd_per_hour: Floats = nodes * self._of_offers(row.offer.usd_per_hour for row in rows) + (
            starting * self._of_offers(row.start_usd_per_hour for row in rows)
        )
        self.sites, self.site = _sites(gangs, [row.offer for row in rows], self.offer)

    def ranked(self, samples_per_s: float, budget_usd_per_hour: float) -> list[Ranked]:
        """Return the sites that can train a throughput within a budget, the cheapest gang first."""
        able = np.flatnonzero((self.rates >= samples_per_s) & (self.usd_per_hour <= budget_usd_per_hour))
        order = able[np.lexsort((self.usd_per_hour[able], self.offer[able]))]
        offers = self.offer[order]
        best = np.sort(order[np.flatnonzero(np.r_[True, offers[1:] != offers[:-1]])]) if len(order) else order
        found: dict[int, list[int]] = {}
        for index, site in zip(best.tolist(), self.site[best].tolist(), strict=True):
            found.setdefault(site, []).append(index)
        ranked = [
            Ranked(float(self.usd_per_hour[chosen].min()), self.sites[site], tuple(self.all[index] for index in chosen))
            for site, chosen in sorted(found.items())
        ]
        return sorted(ranked, key=lambda row: row.least_usd_per_hour)

    def _floats(self, values: Iterable[float]) -> Floats:
        return np.fromiter(values, np.float64, len(self.all))

    def _of_offers(self, values: Iterable[float]) -> Floats:
        per_offer: Floats = np.fromiter(values, np.float64)
        return per_offer[self.offer]


def _sites(gangs: tuple[TrainerColumn, ...], offers: list[Offer], number: Ints) -> tuple[tuple[Site, ...], Ints]:
    """Return the sites by name, and each gang's number among them."""
    names = [(offer.cloud, offer.region, offer.zone or "") for offer in offers]
    of_gangs = [names[index] for index in number.tolist()]
    order = {name: index for index, name in enumerate(sorted(set(of_gangs)))}
    members: list[list[int]] = [[] for _ in order]
    for index, name in enumerate(of_gangs):
        members[order[name]].append(index)
    sites = tuple(
        Site(_anchor(offers[index] for index in number[own].tolist()), tuple(gangs[index] for index in own))
        for own in members
    )
    return sites, np.fromiter((order[name] for name in of_gangs), np.int64, len(gangs))


def _anchor(offers: Iterator[Offer]) -> Offer:
    return max(offers, key=lambda offer: (offer.network_gb_per_s, offer.id))
