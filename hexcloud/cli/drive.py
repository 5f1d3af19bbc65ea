"""drive: one process's hold on a run, from the first turn of its controller to the end of its last machine."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from hexcloud.cli.output import say
from hexcloud.cli.picture import take
from hexcloud.cli.schedules import Schedules
from hexcloud.cli.watch import Watch

if TYPE_CHECKING:
    from hexcloud.controller.reconcile import Controller
    from hexcloud.domain.run import RunRecord, RunState
    from hexcloud.ports import Store

REPLAN_REQUESTED = "replan_requested"
"""Kind of the event by which another process asks the controller for a re-plan."""
_LOCK_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Counts Ctrl-C (and SIGTERM) inside a `with`. The third one is Python's own again: it ends this process."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupts":
        """Begin to count."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt


@contextlib.contextmanager
def hold(run: "RunRecord") -> Iterator[None]:
    """Hold a run's lock inside a `with`. Raises RunIsControlledError when another process keeps it.

    Whoever looks whether a run is controlled takes the lock for a moment, so one refusal is no answer yet.
    """
    from hexcloud import wiring
    from hexcloud.adapters.run_dir import RunIsControlledError

    folder = wiring.run_dir(run)
    give_up = time.monotonic() + _LOCK_S
    while True:
        try:
            folder.__enter__()
            break
        except RunIsControlledError:
            if time.monotonic() > give_up:
                raise
            time.sleep(_LOCK_S / 20)
    try:
        yield
    finally:
        folder.__exit__(None, None, None)


def is_controlled(run: "RunRecord") -> bool:
    """Does a living process control this run? Not when its folder is gone."""
    from hexcloud import wiring

    return Path(run.run_dir).is_dir() and wiring.run_dir(run).is_controlled()


def drive(run: "RunRecord", store: "Store", watch: Watch) -> "RunState":
    """Control a run to its end. The caller holds the run's lock.

    The first Ctrl-C asks for a checkpoint and the end of every machine, the second ends them at once; both are seen
    through. Raises BudgetError and PlanError when nothing can be rented at all.
    """
    from hexcloud import wiring
    from hexcloud.domain.run import RunState

    controller, timer = wiring.controller(run, store), wiring.timer(run)
    if run.state is not RunState.STOPPING:
        timer.start(run.policy.replan, lambda: controller.request_replan("schedule"))
    try:
        with Schedules(run), watch, Interrupts() as interrupts:
            return _loop(_Driver(run, store, controller), watch, interrupts)
    finally:
        timer.stop()


def _loop(driver: "_Driver", watch: Watch, interrupts: Interrupts) -> "RunState":
    from hexcloud.controller.reconcile import ENDED
    from hexcloud.domain.errors import StoreError

    while True:
        driver.heed_interrupts(interrupts.count)
        turn = driver.controller.reconcile_once()
        driver.tell(turn.held)
        with contextlib.suppress(StoreError):  # while the store is gone the controller holds, and so does the view
            driver.heed_requests()
            watch.look(take(driver.store, driver.run.id))
        if turn.state in ENDED:
            return turn.state
        driver.sleep()


class _Driver:
    """Brings the words of users to the controller."""

    def __init__(self, run: "RunRecord", store: "Store", controller: "Controller") -> None:
        from hexcloud import wiring

        self.run, self.store, self.controller = run, store, controller
        self._clock = wiring.clock(run)
        self._poll_s = wiring.timing_of(run).poll_s
        self._heeded = 0
        self._told = ""
        self._last_event = max((number for number, _ in store.events(run.id)), default=0)

    def heed_requests(self) -> None:
        """Pass on what other processes asked for, once. Raises StoreError."""
        for number, event in self.store.events(self.run.id, after=self._last_event):
            self._last_event = number
            if event.kind == REPLAN_REQUESTED:
                self.controller.request_replan("manual")

    def tell(self, held: str) -> None:
        """Say why the controller holds, when that is news."""
        if held and held != self._told:
            say(f"holding, nothing new is rented: {held}")
        self._told = held

    def heed_interrupts(self, interrupts: int) -> None:
        """Act on each Ctrl-C once: the first asks for the end, the second ends every machine."""
        if interrupts >= 1 and self._heeded < 1:
            say("stopping: the run checkpoints and every machine ends; Ctrl-C again ends them at once")
            self.controller.stop("Ctrl-C")
        if interrupts >= 2:
            self.controller.end_now()
        self._heeded = interrupts

    def sleep(self) -> None:
        """Wait for the next turn."""
        self._clock.sleep(self._poll_s)
