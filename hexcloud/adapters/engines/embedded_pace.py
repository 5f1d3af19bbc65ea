"""Pace: makes a fast machine as slow as the one it stands for, by tokens per second."""

BURST_S = 0.2
"""Idle time that may be caught up, seconds: enough for the jitter of timers and weight updates, too little to tell."""


class Pace:
    """A token bucket that may go into debt: one decode step is indivisible, so its cost is paid after it.

    A batch of b samples of L tokens at X samples/s thus takes L steps of b/(X*L) seconds, b/X in all (Little's law).
    """

    def __init__(self, tokens_per_s: float | None) -> None:
        self.tokens_per_s = tokens_per_s
        self._credit = 0.0
        self._seen_s = 0.0

    def charge(self, tokens: int, now_s: float) -> float:
        """Pay for tokens just made; return the seconds to wait before the next step. Time is monotonic."""
        if self.tokens_per_s is None:
            return 0.0
        earned = (now_s - self._seen_s) * self.tokens_per_s
        self._credit = min(self._credit + earned, BURST_S * self.tokens_per_s) - tokens
        self._seen_s = now_s
        return max(0.0, -self._credit / self.tokens_per_s)
