"""ring: which machines form the gang, and in which order its all-reduce goes round them.

A ring all-reduce runs at the speed of its slowest link, so that is maximised first, then the sum of the links.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise, permutations

from hexcloud.domain.plan import SlotName
from hexcloud.planner.links import Links, speed

Ring = tuple[SlotName, ...]
"""Machines in rank order; the last is linked to the first."""

_LARGEST_EXACT_RING = 8
"""Gangs up to this size get the best of all orders (5,040); larger ones a chain that is improved."""


def choose_gang(links: Links, gang: Ring, spare: Ring) -> Ring:
    """Return as many machines as the gang has, of the gang and the spare: those with the worst links go, one by one.

    The head stays: the coordinator lives there. Of equal links the gang's own machines stay.
    """
    kept = [*gang, *spare]
    while len(kept) > len(gang):
        kept.remove(max(reversed(kept[1:]), key=lambda name: _quality(links, combinations(_but(kept, name), 2))))
    return tuple(kept)


def _but(names: Sequence[SlotName], left_out: SlotName) -> list[SlotName]:
    return [name for name in names if name != left_out]


def rank_order(links: Links, names: Ring) -> Ring:
    """Return the gang in ring order. The head, which comes first, stays; equal links keep the order."""
    if len(names) > _LARGEST_EXACT_RING:
        return max((names, _improved(links, _nearest_chain(links, names))), key=lambda ring: _ring_quality(links, ring))
    rings = ((names[0], *rest) for rest in permutations(names[1:]))
    return max(rings, key=lambda ring: _ring_quality(links, ring))


def _ring_quality(links: Links, ring: Ring) -> tuple[float, float]:
    return _quality(links, pairwise((*ring, ring[0])))


def _quality(links: Links, hops: Iterable[tuple[SlotName, SlotName]]) -> tuple[float, float]:
    speeds = [speed(links, one, other) for one, other in hops if one != other]
    return (min(speeds, default=0.0), sum(speeds))


def _nearest_chain(links: Links, names: Ring) -> Ring:
    chain, left = [names[0]], list(names[1:])
    while left:
        fastest = max(left, key=lambda name: speed(links, chain[-1], name))
        left.remove(fastest)
        chain.append(fastest)
    return tuple(chain)


def _improved(links: Links, ring: Ring) -> Ring:
    """Turn stretches of the ring round (2-opt) until no turn betters the two links it replaces.

    Each turn raises the sorted list of link speeds, first the slowest, so it ends.
    """
    turned = True
    while turned:
        turned = False
        for start, end in combinations(range(len(ring)), 2):
            before = ((ring[start], ring[start + 1]), (ring[end], ring[(end + 1) % len(ring)]))
            after = ((before[0][0], before[1][0]), (before[0][1], before[1][1]))
            if end - start > 1 and _quality(links, after) > _quality(links, before):
                ring = (*ring[: start + 1], *ring[start + 1 : end + 1][::-1], *ring[end + 1 :])
                turned = True
    return ring
