"""Capacity: how many machines of an offer can be had, over time. When it shrinks, spot machines are taken back."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from hexcloud.domain.offer import OfferId

UNLIMITED = 10**6


@dataclass(frozen=True)
class CapacityStep:
    """From `at_s` (run clock) on, at most `machines` of an offer exist for us."""

    offer_id: OfferId
    at_s: float
    machines: int


class Capacity:
    """Limits by offer; an offer without steps is unlimited."""

    def __init__(self, steps: Iterable[CapacityStep] = ()) -> None:
        self._paths: dict[OfferId, list[CapacityStep]] = {}
        for step in sorted(steps, key=lambda step: step.at_s):
            self._paths.setdefault(step.offer_id, []).append(step)

    def limit(self, offer_id: OfferId, at_s: float) -> int:
        """Return how many machines there may be at a moment."""
        path = self._paths.get(offer_id, [])
        index = bisect_right(path, at_s, key=lambda step: step.at_s)
        return path[index - 1].machines if index else UNLIMITED

    def times(self) -> Iterable[float]:
        """Return all moments at which a limit changes."""
        return (step.at_s for path in self._paths.values() for step in path)
