"""Patience: calls that may never come back, waited for no longer than is said.

SkyPilot's client reads an answer without a time limit: a server that hangs would hold its caller for ever.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from threading import BoundedSemaphore, Lock, Thread
from typing import TypeVar

from hexcloud.domain.errors import RateLimitError

T = TypeVar("T")


class Patience:
    """Waits for calls by their key. One that is late goes on, and whoever asks again waits for the same one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls: dict[Hashable, Future[object]] = {}

    def wait(self, key: Hashable, within_s: float, call: Callable[[], T]) -> T:
        """Return what the call returns, or raise what it raises; RateLimitError when it takes longer than `within_s`.

        `key` names what is asked: equal keys must ask for the same.
        """
        with self._lock:
            future = self._calls.get(key)
            if future is None:
                future = self._calls[key] = begin(call)
        try:
            found: T = future.result(within_s)  # type: ignore[assignment]  # the key names the call
        except LateError as error:
            if not future.done():
                said = f"SkyPilot's API server took over {within_s:.0f} s to answer; see `sky api info`"
                raise RateLimitError(said, code="hung") from error
            self._forget(key)
            raise
        except BaseException:
            self._forget(key)
            raise
        self._forget(key)
        return found

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._calls.pop(key, None)


def begin(call: Callable[[], T], room: BoundedSemaphore | None = None) -> "Future[T]":
    """Call in a thread of its own, once there is room. It never holds the process that wants to end."""
    future: Future[T] = Future()

    def work() -> None:
        if room is not None:
            room.acquire()
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits hears it
            future.set_exception(error)
        finally:
            if room is not None:
                room.release()

    Thread(target=work, daemon=True, name="skypilot").start()
    return future
