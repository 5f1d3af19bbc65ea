"""gangs: where the trainer could stand and with which gang, as arrays: ten thousand gangs are tried at many paces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
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
    prices: tuple[float, ...]
    """Of the gangs, USD/h."""


class Gangs:
    """All gangs of a problem."""

    def __init__(self, gangs: tuple[TrainerColumn, ...], facts: Mapping[OfferId, OfferFacts], duty: float) -> None:
        number = {name: index for index, name in enumerate(facts)}
        rows = list(facts.values())
        self.all = gangs
        self.offer: Ints = np.fromiter((number[gang.offer_id] for gang in gangs), np.int64, len(gangs))
        self.rates = duty * self._floats(map(attrgetter("samples_per_s"), gangs))
        self.nodes = nodes = self._floats(map(attrgetter("nodes"), gangs))
        starting = np.maximum(0.0, nodes - self._of_offers(row.training for row in rows))
        self.usd_per_hour: Floats = nodes * self._of_offers(row.offer.usd_per_hour for row in rows) + (
            starting * self._of_offers(row.start_usd_per_hour for row in rows)
        )
        self.sites, self.site = _sites(gangs, [row.offer for row in rows], self.offer)
        self._number = number

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
            Ranked(min(prices), self.sites[site], tuple(self.all[index] for index in chosen), prices)
            for site, chosen in sorted(found.items())
            for prices in [tuple(self.usd_per_hour[chosen].tolist())]
        ]
        return sorted(ranked, key=lambda row: row.least_usd_per_hour)

    def largest(self, gangs: tuple[TrainerColumn, ...]) -> Floats:
        """Return the most machines of each offer, by number, that one of the gangs takes."""
        if gangs is self.all:
            return self._largest
        numbers = np.fromiter((self._number[gang.offer_id] for gang in gangs), np.int64, len(gangs))
        return self._most_by_offer(numbers, np.fromiter((gang.nodes for gang in gangs), np.float64, len(gangs)))

    def most_by_site(self, usd_per_hour: float, usd_per_sample_s: float) -> dict[str, float]:
        """Return the most samples/s for a budget at each site, by its anchor: what a gang leaves buys rollout."""
        able = np.flatnonzero(self.usd_per_hour < usd_per_hour)
        most = np.full(len(self.sites), -np.inf)
        bought = (usd_per_hour - self.usd_per_hour[able]) / usd_per_sample_s
        np.maximum.at(most, self.site[able], np.minimum(self.rates[able], bought))
        return {site.anchor.id: value for site, value in zip(self.sites, most.tolist(), strict=True)}

    @cached_property
    def _largest(self) -> Floats:
        return self._most_by_offer(self.offer, self.nodes)

    def _most_by_offer(self, numbers: Ints, nodes: Floats) -> Floats:
        most = np.zeros(len(self._number))
        np.maximum.at(most, numbers, nodes)
        return most

    def _floats(self, values: Iterable[float]) -> Floats:
        return np.fromiter(values, np.float64, len(self.all))

    def _of_offers(self, values: Iterable[float]) -> Floats:
        per_offer: Floats = np.fromiter(values, np.float64)
        return per_offer[self.offer]


def _sites(gangs: tuple[TrainerColumn, ...], offers: list[Offer], number: Ints) -> tuple[tuple[Site, ...], Ints]:
    """Return the sites by name, and each gang's number among them."""
    training = [offers[index] for index in np.unique(number).tolist()]
    anchors: dict[tuple[str, str, str], Offer] = {}
    for offer in training:
        rival = anchors.setdefault(_site_name(offer), offer)
        anchors[_site_name(offer)] = max(offer, rival, key=lambda one: (one.network_gb_per_s, one.id))
    order = {name: index for index, name in enumerate(sorted(anchors))}
    sites = np.fromiter((order.get(_site_name(offer), -1) for offer in offers), np.int64, len(offers))[number]
    members = np.argsort(sites, kind="stable")
    ends = np.searchsorted(sites[members], np.arange(len(order) + 1)).tolist()
    own = (members[start:end].tolist() for start, end in pairwise(ends))
    found = zip(order, own, strict=True)
    return tuple(Site(anchors[name], tuple(gangs[index] for index in indices)) for name, indices in found), sites


def _site_name(offer: Offer) -> tuple[str, str, str]:
    return offer.cloud, offer.region, offer.zone or ""
