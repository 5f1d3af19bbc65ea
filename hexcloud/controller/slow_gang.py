"""A gang whose links are far slower than forecast trains far slower than planned: it is given back."""

from collections.abc import Iterable

from hexcloud.controller.apply import Nodes
from hexcloud.controller.hands import Hands
from hexcloud.controller.observe import measured_links
from hexcloud.domain.fleet import MeasuredLink, Node, NodeStatus
from hexcloud.domain.plan import Role
from hexcloud.planner.distance import forecast_gb_per_s

LEAST_SHARE = 0.7
"""Of the forecast bandwidth; below it a gang is released."""
YOUNG_S = 600.0
"""Wall seconds after its last member came up in which a gang's links are judged: later, training itself fills them."""
MAX_SLOW_GANGS = 2
"""Gangs given back per run. When the third is as slow it is the forecast that is wrong."""
SLOW = "slow links"


def part_with_slow_gang(nodes: Nodes, hands: Hands) -> Nodes:
    """Return all nodes, those of a gang with a bad link on their way out and its pool blocked."""
    gang = [node for node in nodes.values() if _began_together(node)]
    if len(gang) < 2 or not _is_young(gang, hands):
        return nodes
    slow = slowest(_fresh(gang, hands), _forecast(gang, hands))
    given_back = sum(node.rank == 0 and node.cause.startswith(SLOW) for node in nodes.values())
    if slow is None or given_back >= MAX_SLOW_GANGS:
        return nodes
    link, share = slow
    cause = f"{SLOW}: {link.source} to {link.target} makes {link.gb_per_s:.2f} GB/s, {share:.0%} of the forecast"
    hands.block(gang[0].offer_id, cause)
    return nodes | {node.id: hands.drain(node, cause) for node in gang}


def slowest(links: Iterable[MeasuredLink], forecast: float) -> tuple[MeasuredLink, float] | None:
    """Return the link furthest under the least share of its forecast (1e9 bytes/s), and its share; or None. Pure."""
    shares = [(link, link.gb_per_s / forecast) for link in links if forecast > 0]
    bad = [(link, share) for link, share in shares if share < LEAST_SHARE]
    return min(bad, key=lambda pair: pair[1], default=None)


def _began_together(node: Node) -> bool:
    """Is it of the gang, and did it come up before training filled the gang's links?"""
    return node.role is Role.TRAINER and node.status is not NodeStatus.GONE and not node.is_joiner


def _is_young(gang: list[Node], hands: Hands) -> bool:
    ready = [node.ready_at_s for node in gang if node.ready_at_s is not None and node.status is NodeStatus.READY]
    young_s = YOUNG_S * hands.seen.run.clock_scale
    return len(ready) == len(gang) and hands.seen.now_s - max(ready) < young_s


def _fresh(gang: list[Node], hands: Hands) -> list[MeasuredLink]:
    """Return the first measurements of links inside the gang."""
    ids, judged = {node.slot: node.id for node in gang}, hands.memory.judged_links
    links = [link for link in measured_links(hands.seen, hands.ports) if {link.source, link.target} <= set(ids)]
    fresh = [link for link in links if (ids[link.source], ids[link.target]) not in judged]
    judged |= {(ids[link.source], ids[link.target]) for link in fresh}
    return fresh


def _forecast(gang: list[Node], hands: Hands) -> float:
    offer = hands.seen.market.offer(gang[0].offer_id)
    return 0.0 if offer is None else forecast_gb_per_s(offer, offer, hands.seen.market.network)
