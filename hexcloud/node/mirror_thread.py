"""MirrorThread: runs the mirror beside the training, which never waits for the store.

A store that is away is asked again, less and less often, and the run's view says why meanwhile.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from hexcloud.domain.errors import StoreError
from hexcloud.node.mirror import Mirror, SupersededError

LOOK_S = 1.0
MAX_PAUSE_S = 30.0
"""Between two tries of a store that is away: what a loss of the head would cost grows with it."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Tidings:
    """Whom the mirror tells what. Called from its thread, after every round."""

    stored: Callable[[int, str], None]
    """The newest version in the store, and why the store cannot be written; empty when it can."""
    delivered: Callable[[], None]
    """Everything that the run leaves is in the store."""
    superseded: Callable[[], None]
    """Another head has the run: this one must end."""


class MirrorThread:
    """Start it once; it ends when it is told to, or with the process, whatever it is doing then."""

    def __init__(self, mirror: Mirror, tidings: Tidings, look_s: float = LOOK_S) -> None:
        self._mirror = mirror
        self._tidings = tidings
        self._look_s = look_s
        self._pause_s = 0.0
        self._woken = threading.Event()
        self._turned = threading.Condition()
        self._begun = self._ended = 0
        self._is_asked = self._is_stopped = False

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="mirror", daemon=True).start()

    def stop(self) -> None:
        """Begin no further round; nobody waits for one any more."""
        with self._turned:
            self._is_stopped = True
            self._turned.notify_all()
        self._woken.set()

    def catch_up(self, within_s: float) -> bool:
        """Wait until all that there is now is in the store; False when it takes too long."""
        with self._turned:
            ticket = self._begun + 1  # the round that goes on may have looked already
            self._is_asked = True
            self._woken.set()
            self._turned.wait_for(lambda: self._ended >= ticket or self._is_stopped, within_s)
            return self._ended >= ticket

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                self._woken.clear()
                self._turn()
                if not self._is_stopped:
                    self._woken.wait(self._pause_s or self._look_s)
        except SupersededError as error:
            log.error("superseded", reason=str(error))
            self.stop()
            self._tidings.superseded()

    def _turn(self) -> None:
        with self._turned:
            self._begun += 1
            is_asked, self._is_asked = self._is_asked, False
        trouble = self._try(is_asked)
        self._tidings.stored(self._mirror.stored_version, trouble)
        if trouble:
            with self._turned:
                self._is_asked |= is_asked
            return
        if self._mirror.is_delivered:
            self._tidings.delivered()
        with self._turned:
            self._ended = self._begun
            self._turned.notify_all()

    def _try(self, at_once: bool) -> str:
        """Return why the store could not be brought up; empty when it could."""
        try:
            self._mirror.bring_up(at_once)
        except (StoreError, OSError) as error:
            self._pause_s = min(MAX_PAUSE_S, max(self._look_s, 2 * self._pause_s))
            log.warning("store_away", reason=str(error), again_in_s=self._pause_s)
            return str(error)
        if self._pause_s:
            log.info("store_back")
        self._pause_s = 0.0
        return ""
