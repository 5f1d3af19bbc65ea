"""ring: which machines form the gang, and in which order its all-reduce goes round them.

A ring all-reduce runs at the speed of its slowest link, so that is maximised first, then the sum of the links.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.plan import SlotName
from hexcloud.planner.links import Links, speed, speeds

Ring = tuple[SlotName, ...]
"""Machines in rank order; the last is linked to the first."""

_ROUNDING = 1e-9
"""Sums of the same links in another order differ by less, relatively."""
_LARGEST_EXACT_RING = 8
"""Gangs up to this size get the best of all orders (5,040); larger ones a chain that is improved."""


def choose_gang(links: Links, gang: Ring, spare: Ring) -> Ring:
    """Return as many machines as the gang has, of the gang and the spare: those with the worst links go, one by one.

    The head stays: the coordinator lives there. Of equal links the gang's own machines stay.
    """
    return _best(links, (*gang, *spare), len(gang), fixed=1)


def best_gang(links: Links, able: Ring, count: int) -> Ring:
    """Return so many of the machines by the same rule, whichever they are; the best linked to the others is the head.

    Of equal links the first machines are taken, and the first one is the head.
    """
    kept = _best(links, able, count, fixed=0)
    head = max(kept, key=lambda name: _quality(links, ((name, other) for other in kept)))
    return (head, *(name for name in kept if name != head))


def _best(links: Links, names: Sequence[SlotName], count: int, fixed: int) -> Ring:
    """Leave out the machine with the worst links, one by one, the last of equal ones, but never the first `fixed`."""
    between, left = speeds(links, names), np.arange(len(names))
    while len(left) > count:
        left = np.delete(left, fixed + _worst(between[np.ix_(left, left)], fixed))
    return tuple(names[int(number)] for number in left)


def _worst(between: NDArray[np.float64], fixed: int) -> int:
    """Return which machine after the first `fixed` is to go: the slowest link of the others is fastest then, and next
    the sum of theirs. O(n^2).

    Without a machine the slowest link is the same, unless it has a part in each of those: one or two machines may.
    """
    apart = between + np.diag(np.full(len(between), np.inf))
    slowest = (apart == apart.min()).sum(axis=1)
    has_all = np.flatnonzero(slowest[fixed:] == slowest.sum() // 2)
    able = has_all if len(has_all) else np.arange(len(between) - fixed)
    if len(has_all):
        after = [float(np.delete(np.delete(apart, fixed + one, 0), fixed + one, 1).min(initial=np.inf)) for one in able]
        able = able[np.array(after) == max(after)]
    sums = between.sum(axis=1)[fixed:][able]
    return int(able[np.flatnonzero(sums <= sums.min() * (1 + _ROUNDING))[-1]])


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
