"""paced: a source of weights that gives up when it is too slow to be waited for; another one goes on where it was.

Only the time that is spent waiting for the source counts, so a node's own slow link or disk blames nobody.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.rollout_weights import Source

PATIENCE_S = 60.0
SLOWEST_BYTES_PER_S = 25e6
"""For a file there is PATIENCE_S, and its bytes at this pace."""
SHARE = 0.1
"""A source may be so many times slower than that, or than a link that is known: it serves others, too."""
WINDOW_S = 10.0
"""A source is judged each time that it was waited for so long since its first byte."""

OnSlow = Callable[[WeightsManifest | WeightsDelta, Exception], Awaitable[None]]


def patience_s(size: int) -> float:
    """Return how long a file of `size` bytes may be waited for."""
    return PATIENCE_S + size / SLOWEST_BYTES_PER_S


def least_bytes_per_s(size: int, link_bytes_per_s: float | None) -> float:
    """Return the least pace of a source for a file of `size` bytes over a link whose speed may be known."""
    wanted = size / patience_s(size)
    return SHARE * (wanted if link_bytes_per_s is None else min(wanted, link_bytes_per_s))


def paced(source: Source, link_bytes_per_s: float | None = None, on_slow: OnSlow | None = None) -> Source:
    """Return a source that raises EngineError, after saying so, when one is slower than the least pace.

    The wait for each piece, and for the first byte, is the source's own to limit: it may itself wait for the file.
    """

    async def watched(wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        pace = _Pace(least_bytes_per_s(wanted.size, link_bytes_per_s))
        pieces = source(wanted, offset)
        try:
            async for piece in pieces:
                pace.note(len(piece))
                yield piece
                pace.wait()
        except _TooSlowError as error:
            if on_slow is not None:
                await on_slow(wanted, error)
            raise
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    return watched


class _TooSlowError(EngineError):
    """A source is not waited for any longer."""


class _Pace:
    """Bytes and the seconds that they were waited for."""

    def __init__(self, least_bytes_per_s: float) -> None:
        self._least_bytes_per_s = least_bytes_per_s
        self._began_at_s: float | None = None
        self._waited_s, self._came = 0.0, 0

    def wait(self) -> None:
        """Begin to wait for a piece."""
        self._began_at_s = time.monotonic()

    def note(self, size: int) -> None:
        """Count a piece. Raises _TooSlowError at the end of a window in which too little came."""
        if self._began_at_s is None:
            return
        self._waited_s, self._came = self._waited_s + time.monotonic() - self._began_at_s, self._came + size
        if self._waited_s < WINDOW_S:
            return
        if self._came < self._least_bytes_per_s * self._waited_s:
            raise _TooSlowError(
                f"too slow: {self._came} bytes in {self._waited_s:.0f} s, and {self._least_bytes_per_s:.0f} a second "
                f"are the least"
            )
        self._waited_s, self._came = 0.0, 0
