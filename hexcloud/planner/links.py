"""links: the graph of machines and the bandwidth between them. The only user of networkx."""

from collections.abc import Sequence
from typing import TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import SlotName
from hexcloud.planner.distance import forecast_gb_per_s

Links: TypeAlias = "nx.Graph[SlotName]"
"""Vertices are slot names; an edge's `gb_per_s` is the slower direction of the link, 1e9 bytes/s."""

NO_LINK_GB_PER_S = 1e-6
"""Of a pair without an edge: as good as nothing, and still a finite time for weights to arrive in."""


def link_graph(machines: dict[SlotName, Offer], market: Market, fleet: FleetState) -> Links:
    """Return the graph of slots with measured bandwidth, or the forecast of the catalog where none is.

    Every pair has an edge, but for those that were found unable to reach each other.
    """
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
    graph.remove_edges_from([(one, other) for one, other, link in graph.edges(data=True) if link["gb_per_s"] <= 0.0])
    return graph


def speeds(links: Links, names: Sequence[SlotName]) -> NDArray[np.float64]:
    """Return `speed` of every pair, [n, n] and symmetric; 0 between a machine and itself."""
    index = {name: number for number, name in enumerate(names)}
    found = np.full((len(names), len(names)), NO_LINK_GB_PER_S)
    np.fill_diagonal(found, 0.0)
    for one, other, link in links.edges(data=True):
        if one in index and other in index:
            found[index[one], index[other]] = found[index[other], index[one]] = link["gb_per_s"]
    return found


def speed(links: Links, one: SlotName, other: SlotName) -> float:
    """Return the bandwidth between two machines, 1e9 bytes/s."""
    return float(links.edges[one, other]["gb_per_s"]) if links.has_edge(one, other) else NO_LINK_GB_PER_S
