"""cheapest_way: how a worker gets to a version, by deltas from what it has or by the whole file. Pure.

And is_full_due: when the next version should be stored whole, so that no newcomer needs a long chain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.messages import WeightsManifest


@dataclass(frozen=True)
class WayCosts:
    """What a worker's seconds go to."""

    link_bytes_per_s: float
    """How fast files arrive."""
    apply_bytes_per_s: float
    """How fast a delta is applied, in bytes of the result: it is read, patched, hashed and written."""

    def of(self, delta: WeightsDelta) -> float:
        """Return the seconds of one step of a chain."""
        return delta.size / self.link_bytes_per_s + delta.result.size / self.apply_bytes_per_s

    def of_whole(self, manifest: WeightsManifest) -> float:
        """Return the seconds of the whole file."""
        return manifest.size / self.link_bytes_per_s


def cheapest_way(
    have: WeightsManifest | None, wanted: WeightsManifest, deltas: Iterable[WeightsDelta], costs: WayCosts
) -> tuple[WeightsDelta, ...] | None:
    """Return the chain of deltas to apply in order (empty: nothing to do), or None where the whole file is sooner.

    Deltas may skip versions. A base counts only if it is the very file that the worker has: epoch, version and digest.
    """
    if have == wanted:
        return ()
    if have is None:
        return None
    best: dict[WeightsManifest, tuple[float, tuple[WeightsDelta, ...]]] = {have: (0.0, ())}
    # Versions only grow along a chain, so in this order every base is settled before it is left.
    for delta in sorted(deltas, key=lambda one: (one.base.version, one.result.version)):
        if delta.base not in best or delta.result.version > wanted.version:
            continue
        seconds, chain = best[delta.base]
        reached = seconds + costs.of(delta), (*chain, delta)
        if delta.result not in best or reached[0] < best[delta.result][0]:
            best[delta.result] = reached
    if wanted not in best or best[wanted][0] >= costs.of_whole(wanted):
        return None
    return best[wanted][1]


def is_full_due(since_full: Sequence[WeightsDelta], size: int, every: int) -> bool:
    """Is the next version to be stored whole? After `every` deltas, or when they weigh as much as a whole version."""
    return len(since_full) >= every or sum(delta.size for delta in since_full) >= size
