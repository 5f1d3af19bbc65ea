"""partition: which machine does what with which. The second phase of AReaL-Hex (arXiv 2511.00796, section 4.3).

On a market the MILP has fixed the counts per role, so what is left is the rank order of the gang and the weight routes.
For a fixed fleet `bisect` also finds the two sides; `fleet_split` drives it.
"""

from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import TypeAlias

import networkx as nx

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Allocation, ExecutionPlan, Placement, Role, Slot, SlotName, WeightRoute
from hexcloud.domain.workload import Workload
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.planner.forecast import forecast

Links: TypeAlias = "nx.Graph[SlotName]"
"""Vertices are slot names; an edge's `gb_per_s` is the slower direction of the link, 1e9 bytes/s."""

_LEAST_GAIN = 1e-12
"""Smaller differences of a score are rounding."""
_CHAIN = 8
"""Steps a refinement looks ahead: enough to leave small local optima, and cheap for some hundred machines."""
_NOBODY = SlotName("")
"""Stands for no machine in a swap, so that adding and dropping are swaps too."""
_LARGEST_EXACT_RING = 8
"""Gangs up to this size get the best of all orders (5,040); larger ones a nearest-neighbour chain."""


def partition(
    placement: Placement, allocation: Allocation, market: Market, workload: Workload, fleet: FleetState
) -> ExecutionPlan:
    """Order the gang, route the weights and forecast the run. Measured links win over forecast ones."""
    offers = {offer.id: offer for offer in market.offers}
    machines = {slot.name: offers[slot.offer_id] for slot in placement.slots}
    links = link_graph(machines, market, fleet)
    ranks = rank_order(links, placement)
    placement = _ranked(placement, ranks)
    routes = weight_routes(links, placement, machines)
    return ExecutionPlan(
        placement=placement,
        ranks=ranks,
        routes=routes,
        forecast=forecast(placement, allocation, routes, machines, workload),
        allocation=allocation,
    )


def link_graph(machines: dict[SlotName, Offer], market: Market, fleet: FleetState) -> Links:
    """Return the complete graph of slots with measured bandwidth, or the forecast of the catalog where none is."""
    graph: Links = nx.Graph()
    graph.add_nodes_from(sorted(machines))
    names = sorted(machines)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            expected = forecast_gb_per_s(machines[one], machines[other], market.network)
            graph.add_edge(one, other, gb_per_s=expected, measured=False)
    for link in fleet.links:
        if not graph.has_edge(link.source, link.target):
            continue
        edge = graph.edges[link.source, link.target]
        slower = min(edge["gb_per_s"], link.gb_per_s) if edge["measured"] else link.gb_per_s
        edge.update(gb_per_s=slower, measured=True)
    return graph


def rank_order(links: Links, placement: Placement) -> tuple[SlotName, ...]:
    """Return the gang in ring order. The head stays where placement put it: the coordinator lives there.

    A ring all-reduce runs at the speed of its slowest link, so that is maximised first, then the sum of the links.
    Equal links keep the placement's order.
    """
    gang = sorted(placement.role(Role.TRAINER), key=lambda slot: (slot.rank, slot.name))
    names = tuple(slot.name for slot in gang)
    if len(names) > _LARGEST_EXACT_RING:
        return max((names, _nearest_chain(links, names)), key=lambda ring: _ring_quality(links, ring))
    rings = ((names[0], *rest) for rest in permutations(names[1:]))
    return max(rings, key=lambda ring: _ring_quality(links, ring))


def _ring_quality(links: Links, ring: tuple[SlotName, ...]) -> tuple[float, float]:
    speeds = [links.edges[a, b]["gb_per_s"] for a, b in pairwise((*ring, ring[0])) if a != b]
    return (min(speeds, default=0.0), sum(speeds))


def _nearest_chain(links: Links, names: tuple[SlotName, ...]) -> tuple[SlotName, ...]:
    chain, left = [names[0]], list(names[1:])
    while left:
        fastest = max(left, key=lambda name: links.edges[chain[-1], name]["gb_per_s"])
        left.remove(fastest)
        chain.append(fastest)
    return tuple(chain)


def _ranked(placement: Placement, ranks: tuple[SlotName, ...]) -> Placement:
    rank_of = {name: rank for rank, name in enumerate(ranks)}
    slots = (
        slot.model_copy(update={"rank": rank_of[slot.name]}) if slot.name in rank_of else slot
        for slot in placement.slots
    )
    return Placement(slots=tuple(slots))


def weight_routes(links: Links, placement: Placement, machines: dict[SlotName, Offer]) -> tuple[WeightRoute, ...]:
    """Return one route per rollout slot: one copy crosses to a region, whose other slots fetch it from a peer."""
    head = next(slot for slot in placement.role(Role.TRAINER) if slot.rank == 0)
    regions: dict[tuple[str, str], list[Slot]] = {}
    for slot in placement.role(Role.ROLLOUT):
        regions.setdefault(_region(machines[slot.name]), []).append(slot)
    routes: list[WeightRoute] = []
    for region, slots in sorted(regions.items()):
        names = [slot.name for slot in slots]
        if region == _region(machines[head.name]):
            routes += [_route(links, head.name, name, False) for name in names]
            continue
        entry = max(names, key=lambda name: _entry_quality(links, head.name, name, names))
        routes.append(_route(links, head.name, entry, True))
        routes += [_route(links, entry, name, False) for name in names if name != entry]
    return tuple(sorted(routes, key=lambda route: route.target))


def _region(offer: Offer) -> tuple[str, str]:
    return (offer.cloud, offer.region)


def _entry_quality(links: Links, head: SlotName, name: SlotName, peers: list[SlotName]) -> tuple[float, float]:
    onward = sum(links.edges[name, peer]["gb_per_s"] for peer in peers if peer != name)
    return (links.edges[head, name]["gb_per_s"], onward)


def _route(links: Links, source: SlotName, target: SlotName, crosses: bool) -> WeightRoute:
    speed = links.edges[source, target]["gb_per_s"]
    return WeightRoute(source=source, target=target, gb_per_s=speed, crosses_region=crosses)


def eq3_score(links: Links, trainers: frozenset[SlotName]) -> float:
    """Return AReaL-Hex's Eq. 3: bandwidth share inside the trainer's side + HBM bandwidth share of the rollout side.

    Vertices carry `flops` and `hbm_gb_per_s` next to the links' `gb_per_s`.
    """
    total = sum(speed for _, _, speed in _speeds(links))
    kept = sum(speed for one, other, speed in _speeds(links) if one in trainers and other in trainers)
    hbm = _figures(links, "hbm_gb_per_s")
    rollout = sum(speed for name, speed in hbm.items() if name not in trainers)
    return (kept / total if total else 0.0) + rollout / sum(hbm.values())


def _speeds(links: Links) -> Iterator[tuple[SlotName, SlotName, float]]:
    yield from ((one, other, float(edge["gb_per_s"])) for one, other, edge in links.edges(data=True))


def _figures(links: Links, key: str) -> dict[SlotName, float]:
    return {name: float(vertex[key]) for name, vertex in links.nodes(data=True)}


def flops_window(links: Links, share: float) -> tuple[float, float]:
    """Return gamma_L and gamma_H around a share: half the largest machine each way, so that some cut always fits.

    The least share is half the largest machine: one machine of any kind must be able to train.
    """
    flops = _figures(links, "flops").values()
    half = max(flops) / sum(flops) / 2
    return (max(share, half) - half, max(share, half) + half)


def bisect(links: Links, share: float) -> frozenset[SlotName]:
    """Return the trainer's side with about this share of all FLOPS and the best Eq. 3 score found.

    Grown greedily from every distinct machine, then refined by moves and swaps (Kernighan-Lin) inside the window.
    """
    cut = _Cut(links)
    low, high = flops_window(links, share)
    sides = [cut.refine(cut.grow(seed, low), low, high) for seed in cut.seeds()]
    return max(sides, key=lambda side: (eq3_score(links, side), sorted(side)))


class _Cut:
    """The graph as shares of its totals, so that moving one machine changes the score by `kept - hbm`."""

    def __init__(self, links: Links) -> None:
        flops, hbm = _figures(links, "flops"), _figures(links, "hbm_gb_per_s")
        self.flops = {name: value / sum(flops.values()) for name, value in flops.items()}
        self.hbm = {name: value / sum(hbm.values()) for name, value in hbm.items()}
        self.kept: dict[SlotName, dict[SlotName, float]] = {name: {} for name in flops}
        total = sum(speed for _, _, speed in _speeds(links))
        for one, other, speed in _speeds(links):
            self.kept[one][other] = self.kept[other][one] = speed / total

    def seeds(self) -> list[SlotName]:
        """Return one machine of each kind: same speed and same links."""
        kinds: dict[tuple[float, ...], SlotName] = {}
        for name, kept in self.kept.items():
            kinds.setdefault((self.flops[name], self.hbm[name], *sorted(kept.values())), name)
        return sorted(kinds.values())

    def grow(self, seed: SlotName, low: float) -> frozenset[SlotName]:
        """Add the machine that gains most per FLOPS until the side reaches the window."""
        side, flops = {seed}, self.flops[seed]
        gain = {name: kept.get(seed, 0.0) - self.hbm[name] for name, kept in self.kept.items()}
        while flops < low and len(side) < len(self.flops):
            outside = [name for name in self.flops if name not in side]
            best = max(outside, key=lambda name: gain[name] / self.flops[name])
            side.add(best)
            flops += self.flops[best]
            for other, kept in self.kept[best].items():
                gain[other] += kept
        return frozenset(side)

    def refine(self, side: frozenset[SlotName], low: float, high: float) -> frozenset[SlotName]:
        """Make the best chain of moves and swaps again and again, until none improves the score.

        As in Kernighan-Lin a chain may first get worse; a machine that moved stays where it is to its end.
        """
        while True:
            trial, value, best, best_value = side, 0.0, side, _LEAST_GAIN
            for _ in range(_CHAIN):
                moved = trial ^ side
                change = self._best_change(trial, moved, low, high)
                if change is None:
                    break
                value, trial = value + change[0], change[1]
                if value > best_value:
                    best, best_value = trial, value
            if best == side:
                return side
            side = best

    def _best_change(
        self, side: frozenset[SlotName], fixed: frozenset[SlotName], low: float, high: float
    ) -> tuple[float, frozenset[SlotName]] | None:
        """Return gain and side of the best move or swap of machines that are not fixed, inside the window."""
        flops, kept = self.flops | {_NOBODY: 0.0}, self.kept | {_NOBODY: {}}
        gain = {name: sum(kept[name].get(other, 0.0) for other in side) - self.hbm[name] for name in self.flops}
        gain[_NOBODY] = 0.0
        total = sum(flops[name] for name in side)
        inside = [_NOBODY, *sorted(side - fixed)]
        outside = [_NOBODY, *(name for name in self.flops if name not in side | fixed)]
        changes = [
            (gain[joining] - kept[leaving].get(joining, 0.0) - gain[leaving], leaving, joining)
            for leaving in inside
            for joining in outside
            if leaving != joining and low - _LEAST_GAIN <= total - flops[leaving] + flops[joining] <= high + _LEAST_GAIN
        ]
        sides = ((value, (side - {leaving}) | {joining} - {_NOBODY}) for value, leaving, joining in changes)
        return max((one for one in sides if one[1]), key=lambda one: one[0], default=None)
