"""Watches: who looks at a run while it goes on. A terminal gets the live view, anything else a line now and then."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from hexcloud.cli.live import live_view
from hexcloud.cli.picture import Picture, emulation_note, progress_line

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY_S = 10.0
_TOLD = frozenset(
    {
        "replan",
        "price_shift",
        "calibrated",
        "node_lost",
        "pool_blocked",
        "launch_refused",
        "launch_failed",
        "run_stopping",
        "run_ended",
    }
)


class Watch(Protocol):
    """Looks at a run again and again, inside a `with`."""

    def __enter__(self) -> "Watch":
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what was shown last stays."""
        ...

    def look(self, picture: Picture) -> None:
        """Show the run as it is now."""
        ...


def watch_on(console: "Console") -> Watch:
    """Return the watch that suits where the words go."""
    return LiveWatch(console) if console.is_terminal else LineWatch(console)


class LineWatch:
    """Prints a line every ten seconds, and the events that matter as they happen; an adopted run's past is past."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._next_line_at: float | None = None
        self._began_wall_s = time.time()
        self._events_seen = 0

    def __enter__(self) -> "LineWatch":
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""

    def look(self, picture: Picture) -> None:
        """Print what is new."""
        now = time.monotonic()
        if self._next_line_at is None:
            self._next_line_at = now
            self._say(f"run {picture.run.id}. {emulation_note(picture.run)}")
        for event in picture.events[self._events_seen :]:
            if event.kind in _TOLD and event.wall_s >= self._began_wall_s:
                self._say(f"{event.kind}: {event.text}")
        self._events_seen = len(picture.events)
        if now >= self._next_line_at:
            self._next_line_at = now + LINE_EVERY_S
            self._say(progress_line(picture))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


class LiveWatch:
    """Redraws the live view in place."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> "LiveWatch":
        """Begin."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the last view stays on the screen."""
        self._live.stop()

    def look(self, picture: Picture) -> None:
        """Redraw."""
        self._live.update(live_view(picture))
