"""Termination: SIGTERM ends a trainer between two steps, where a checkpoint is true, or at once while it only waits."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hexcloud.domain.errors import HexcloudError


class TerminatedError(HexcloudError):
    """The process was told to end."""


class Termination:
    """Catches SIGTERM from its construction on. Only the main thread may make one."""

    def __init__(self) -> None:
        self._is_asked = False
        self._may_interrupt = False
        signal.signal(signal.SIGTERM, self._on_signal)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Mark a block that holds no half-done work. Raises TerminatedError in it, also for an earlier signal."""
        self._may_interrupt = True
        try:
            if self._is_asked:
                raise TerminatedError("SIGTERM")
            yield
        finally:
            self._may_interrupt = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_asked = True
        if self._may_interrupt:
            self._may_interrupt = False  # a second signal must not interrupt the farewell
            raise TerminatedError("SIGTERM")
