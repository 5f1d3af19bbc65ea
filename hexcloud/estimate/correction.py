"""What a run's own heartbeats say about how fast its engines are, as a correction of their estimated speed.

Only saturated time counts: an engine that waits for work, pauses or changes its weights is slower than it could be, and
a planner that believed it would buy more of it, which then waits even longer.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

SATURATED_SHARE = 0.9
"""An engine is full when this share of its slots is taken (DESIGN section 4)."""
MEMORY_S = 600.0
"""Saturated seconds after which a new speed counts for 63 %: some twenty steps of a run."""
MAX_APART_S = 15.0
"""Heartbeats come every second or few; between two that are further apart a node may have waited unseen."""
LEAST, MOST = 0.5, 1.5
"""Bounds of what a run may correct the estimate by; further off, something else is wrong than the estimate."""


@dataclass(frozen=True)
class Beat:
    """One heartbeat of a rollout node. Times are wall seconds."""

    at_s: float
    running: int
    """Samples being generated."""
    slots: int
    """Most that can be."""
    version: int
    """Weights loaded."""
    generated_tokens: int
    """Since the node started. Nodes count them when a generation ends, so short stretches may have none."""
    is_paused: bool = False

    @property
    def is_saturated(self) -> bool:
        """Is it as busy as it can be?"""
        return not self.is_paused and self.running >= SATURATED_SHARE * self.slots > 0


@dataclass(frozen=True)
class Stretch:
    """Saturated time at one version of the weights."""

    seconds: float
    tokens: int

    def __add__(self, other: "Stretch") -> "Stretch":
        """Return both as one."""
        return Stretch(self.seconds + other.seconds, self.tokens + other.tokens)


NO_TIME = Stretch(0.0, 0)


def stretches(beats: Iterable[Beat]) -> tuple[Stretch, ...]:
    """Return the times between neighbouring heartbeats of one node, oldest first, that count.

    Both ends must be saturated with the same weights; a node that restarted counts its tokens anew, so it does not.
    Before its first tokens an engine warms up, and none of what it works on is counted yet.
    """
    return tuple(
        Stretch(later.at_s - earlier.at_s, later.generated_tokens - earlier.generated_tokens)
        for earlier, later in pairwise(beats)
        if earlier.is_saturated
        and later.is_saturated
        and earlier.version == later.version
        and 0.0 < later.at_s - earlier.at_s <= MAX_APART_S
        and later.generated_tokens >= earlier.generated_tokens > 0
    )


def corrected_speed(speed: float, found: Iterable[Stretch], estimated_tokens_per_s: float) -> float:
    """Return the speed factor after what was found, smoothed over saturated time and bounded.

    `estimated_tokens_per_s` is the estimate at speed 1. Factors are smoothed as logarithms, so that twice and half as
    fast weigh the same. Without saturated time nothing changes.
    """
    total = sum(found, NO_TIME)
    if total.seconds <= 0 or total.tokens <= 0:
        return speed
    measured = total.tokens / total.seconds / estimated_tokens_per_s
    weight = -math.expm1(-total.seconds / MEMORY_S)
    smoothed = math.exp((1.0 - weight) * math.log(speed) + weight * math.log(measured))
    return min(max(smoothed, LEAST), MOST)
