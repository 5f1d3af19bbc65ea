"""TokenBucket: one pace for everything a node sends or receives over its emulated link."""

import asyncio
import math
import time

LATE_S = 0.3
"""A caller this late was held up (timers are coarse, machines busy) and catches up; a later one was idle."""


class TokenBucket:
    """A pace in bytes per second; idle time earns no burst.

    Callers share the pace in the order in which they ask. Without a rate it never waits.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be positive, got {bytes_per_s}")
        self.bytes_per_s = bytes_per_s
        self._free_at = -math.inf

    def wait_s(self, size: int, now: float) -> float:
        """Book `size` bytes and return how long to wait, from `now` (monotonic seconds), until they have passed."""
        if self.bytes_per_s is None:
            return 0.0
        starts_at = now if now - self._free_at > LATE_S else self._free_at
        self._free_at = starts_at + size / self.bytes_per_s
        return max(0.0, self._free_at - now)

    async def take(self, size: int) -> None:
        """Wait until `size` bytes have passed."""
        wait = self.wait_s(size, time.monotonic())
        if wait > 0:
            await asyncio.sleep(wait)
