"""Problem: what the MILP knows, indexed once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

import numpy as np

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import LinkScope, Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Columns, Role, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, transfer
from hexcloud.estimate.freshness import SERIAL_SHARE, farthest_s
from hexcloud.estimate.risk import availability, startup_usd
from hexcloud.planner.distance import scope_between
from hexcloud.planner.gangs import Gangs, Site
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.stock import Stock
from hexcloud.planner.table import Facts, Flags, Floats, Ints, OfferFacts, Rungs, Table

S_PER_H = 3600.0
RESERVED_VCPUS_PER_GPU = 1.0
"""Each engine keeps one core busy with scheduling and detokenising; the others compute rewards."""

Region = tuple[str, str]
"""Cloud and region."""
_AT_HOME = (LinkScope.ZONE, LinkScope.REGION)


@dataclass(frozen=True)
class Ways:
    """From a trainer's site to every offer, by number."""

    travel_s: Floats
    """Seconds a version travels."""
    usd_per_version: Floats
    """USD for its first copy into the region; 0 at home."""


@dataclass(frozen=True)
class Problem:
    """One market, job, policy and fleet, with the columns to choose from."""

    columns: Columns | Kinds
    market: Market
    workload: Workload
    policy: Policy
    fleet: FleetState
    require: frozenset[OfferId] = frozenset()
    """Offers of which the plan must hold at least one machine, if any: what would it cost to have it?"""
    slack: Mapping[str, float] = field(default_factory=dict)
    """By how much rows may be missed, by name: `survive[...]` in samples/s, `in_flight` in samples."""
    keeps_all: bool = False
    """Solve with columns that cannot be in the best plan too: slower and the same, to measure and check the pruning."""

    @cached_property
    def kinds(self) -> Kinds:
        """The columns, equal machines' once."""
        return self.columns if isinstance(self.columns, Kinds) else Kinds.of(self.columns)

    @cached_property
    def offers(self) -> dict[OfferId, Offer]:
        """Offers of all columns, sorted by id."""
        wanted = self.kinds.of_offers
        return {offer.id: offer for offer in sorted(self.market.offers, key=attrgetter("id")) if offer.id in wanted}

    @cached_property
    def limits(self) -> Stock:
        """Stock limits of this market, policy and fleet."""
        return Stock(self.market, self.policy, self.fleet)

    @cached_property
    def stock(self) -> dict[OfferId, int]:
        """Most machines a plan may hold, by offer."""
        return {name: self.limits.most(offer) for name, offer in self.offers.items()}

    @cached_property
    def offer_numbers(self) -> dict[OfferId, int]:
        """Number of every offer, as in `facts` and `Table.offer`."""
        return {name: number for number, name in enumerate(self.offers)}

    @cached_property
    def facts(self) -> Facts:
        """The offers as arrays."""
        return Facts([self._facts_of(offer) for offer in self.offers.values()])

    def _facts_of(self, offer: Offer) -> OfferFacts:
        return OfferFacts(
            offer=offer,
            stock=self.stock[offer.id],
            running=self.limits.running(offer.id, Role.ROLLOUT),
            training=self.limits.running(offer.id, Role.TRAINER),
            start_usd_per_hour=self.new_machine_usd_per_hour(offer),
            availability=availability(offer, self.market.calibration),
            cores=_reward_vcpus(offer),
            draws=tuple(draw for draw in offer.draws() if draw.quota in self.quotas) if self.quotas else (),
            is_required=offer.id in self.require,
        )

    @cached_property
    def quotas(self) -> dict[str, float]:
        """Units a plan may draw on, by quota."""
        return {quota.key: self.limits.most_units(quota) for quota in self.market.quotas}

    @cached_property
    def rungs(self) -> Rungs:
        """The rollout columns of all kinds as arrays."""
        return Rungs(self.kinds.ladders)

    @cached_property
    def ladders(self) -> Ints:
        """Number of every offer's ladder."""
        return np.fromiter((self.kinds.of_offers[name][0] for name in self.offers), np.int64, len(self.offers))

    def rows(self, wanted: Flags) -> Table:
        """Return rollout columns of usable offers as rows: the rungs that are wanted of each."""
        usable = np.flatnonzero(self.facts.stock > 0)
        offer, rung = self.rungs.spread(wanted, self.ladders[usable])
        offer = usable[offer]
        if not self.rungs.is_single:
            is_whole = self.facts.stock[offer] >= self.rungs.nodes[rung]
            offer, rung = offer[is_whole], rung[is_whole]
        return Table(self.facts, self.rungs, offer, rung)

    @cached_property
    def table(self) -> Table:
        """All usable rollout columns as rows, in the order of `rollout`."""
        return self.rows(np.ones(len(self.rungs.columns), np.bool_))

    @cached_property
    def rollout(self) -> tuple[RolloutColumn, ...]:
        """Usable rollout columns, sorted by offer, degree and batch: very many on a whole market."""
        columns = (column for name in self.offers for column in self.kinds.rollout_of(name))
        return tuple(column for column in columns if self.stock[column.offer_id] >= column.nodes)

    @cached_property
    def gangs(self) -> tuple[TrainerColumn, ...]:
        """Usable gangs, sorted by offer and nodes: very many on a whole market."""
        gangs = (gang for name in self.offers for gang in self.kinds.gangs_of(name))
        return tuple(gang for gang in gangs if self.stock[gang.offer_id] >= gang.nodes)

    @cached_property
    def gang_table(self) -> Gangs:
        """All gangs and their sites, as arrays."""
        return Gangs(self.kinds, self.facts, self.duty, keeps_all=self.keeps_all)

    @property
    def sites(self) -> tuple[Site, ...]:
        """Sites with a usable gang, by name."""
        return self.gang_table.sites

    @property
    def loses_its_one_pool(self) -> bool:
        """Can no plan survive, as one offer is in one failure domain? The solver would take seconds to see that."""
        return self.policy.max_pools == 1 and self.policy.survival_share > 0 and not self.slack

    @property
    def duty(self) -> float:
        """Share of time each pool works: all of it, unless eta = 0 makes them take turns."""
        return 1.0 if self.workload.eta > 0 else SERIAL_SHARE

    def step_s(self, samples_per_s: float) -> float:
        """Return seconds between published versions."""
        return self.workload.samples_per_step / samples_per_s

    def rate(self, column: RolloutColumn, samples_per_s: float) -> float:
        """Return trained samples/s of one unit at the run's T, with losses, pauses and drops taken off."""
        pause = rollout.pause_share(self.workload, column.tp, self.step_s(samples_per_s))
        return self.full_rate(column) * (1.0 - pause)

    def full_rate(self, column: RolloutColumn) -> float:
        """Return trained samples/s of one unit between pauses: the same at every throughput.

        The spot share is a share of this, so that a fleet which keeps it keeps it when the run is slower.
        """
        available = availability(self.offers[column.offer_id], self.market.calibration, column.nodes)
        return column.samples_per_s * available * (1.0 - self.workload.drop_share) * self.duty

    def reward_vcpus(self, column: RolloutColumn) -> float:
        """Return cores of one unit left for rewards: of a replica over machines its head's, which alone scores."""
        return _reward_vcpus(self.offers[column.offer_id])

    def new_machine_usd_per_hour(self, offer: Offer) -> float:
        """Return the start-up of one machine spread over the horizon."""
        return startup_usd(offer, self.market.calibration) / self.policy.horizon_h

    def gang_usd_per_hour(self, gang: TrainerColumn) -> float:
        """Return rent and spread start-up of a gang, less what runs already."""
        offer = self.offers[gang.offer_id]
        starting = max(0, gang.nodes - self.limits.running(offer.id, Role.TRAINER))
        return gang.nodes * offer.usd_per_hour + starting * self.new_machine_usd_per_hour(offer)

    def is_young_enough(self, column: RolloutColumn, travel_s: float, samples_per_s: float) -> bool:
        """Would the p95 sample of a column still be trainable when weights travel `travel_s` to it?"""
        farthest = farthest_s(self.workload, column.tp, column.generation_s, self.step_s(samples_per_s))
        return travel_s <= farthest - column.spread_s

    def ways(self, site: Site) -> Ways:
        """Return the way of the weights from a site to every offer, computed once per site."""
        known = self._ways_by_site.get(site.anchor.id)
        if known is None:
            known = self._ways_by_site[site.anchor.id] = self._new_ways(site.anchor)
        return known

    @cached_property
    def travels_s(self) -> Floats:
        """Every time that a version may travel from any trainer to any rollout machine, seconds, ascending."""
        networks = {offer.network_gb_per_s for offer in self.offers.values()}
        seconds_at_1 = transfer.transfer_s(self._version_bytes, 1.0)
        return np.unique([seconds_at_1 / gb_per_s for gb_per_s in {*networks, *self._links.values()}])

    def egress_usd_per_hour(self, source: Offer, target: Offer, samples_per_s: float) -> float:
        """Return what one copy of every version costs from one machine to another."""
        return self._usd_per_version(source, target) * S_PER_H / self.step_s(samples_per_s)

    def zone_egress_usd_per_hour(self, offer: Offer, samples_per_s: float) -> float:
        """Return what one copy of every version costs from a machine to another zone of its region."""
        usd_per_gb = self._egress_usd_per_gb.get((offer.cloud, LinkScope.REGION), 0.0)
        return transfer.egress_usd(self._version_bytes, usd_per_gb) * S_PER_H / self.step_s(samples_per_s)

    def _new_ways(self, source: Offer) -> Ways:
        places, number, networks = self._places
        scopes = [self._scope(source, place) for place in places]
        links = np.array([self._links.get(scope, INFINITY) for scope in scopes])[number]
        prices = [
            0.0 if scope in _AT_HOME else self._usd_per_version(source, place)
            for scope, place in zip(scopes, places, strict=True)
        ]
        gb_per_s = np.minimum(np.minimum(networks, source.network_gb_per_s), links)
        seconds_at_1 = transfer.transfer_s(self._version_bytes, 1.0)
        return Ways(travel_s=seconds_at_1 / gb_per_s, usd_per_version=np.array(prices)[number])

    @cached_property
    def _places(self) -> tuple[list[Offer], Ints, Floats]:
        """One offer of every zone, and by offer: number of its zone and its network, 1e9 bytes/s."""
        number: dict[tuple[str, str, str | None], int] = {}
        places: list[Offer] = []
        numbers = []
        for offer in self.offers.values():
            place = (offer.cloud, offer.region, offer.zone)
            if place not in number:
                number[place] = len(places)
                places.append(offer)
            numbers.append(number[place])
        networks = [offer.network_gb_per_s for offer in self.offers.values()]
        return places, np.array(numbers, np.int64), np.array(networks, np.float64)

    def _usd_per_version(self, source: Offer, target: Offer) -> float:
        billed = self._scope(source, target) if source.cloud == target.cloud else LinkScope.WORLD
        usd_per_gb = self._egress_usd_per_gb.get((source.cloud, billed), 0.0)
        return transfer.egress_usd(self._version_bytes, usd_per_gb)

    def _scope(self, source: Offer, target: Offer) -> LinkScope:
        """Distance, looked up by region: spelling out the continents of 1,500 offers for each site is slow."""
        pair = (source.cloud, source.region, target.cloud, target.region, source.zone == target.zone)
        if pair not in self._scopes:
            self._scopes[pair] = scope_between(source, target)
        return self._scopes[pair]

    @cached_property
    def _version_bytes(self) -> float:
        return self.workload.version_bytes

    @cached_property
    def _links(self) -> dict[LinkScope, float]:
        return {link.scope: link.gb_per_s for link in self.market.network.links}

    @cached_property
    def _egress_usd_per_gb(self) -> dict[tuple[str, LinkScope], float]:
        return {(row.cloud, row.scope): row.usd_per_gb for row in self.market.network.egress}

    @cached_property
    def _ways_by_site(self) -> dict[OfferId, Ways]:
        return {}

    @cached_property
    def _scopes(self) -> dict[tuple[str, str, str, str, bool], LinkScope]:
        return {}


def _reward_vcpus(offer: Offer) -> float:
    return max(0.0, offer.vcpus - RESERVED_VCPUS_PER_GPU * offer.gpu_count)
