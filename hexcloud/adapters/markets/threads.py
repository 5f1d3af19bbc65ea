"""Read many regions at once: a few threads, answers as they arrive, and an end that no silent region can put off."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
_Answers = queue.SimpleQueue[tuple[str, T | None]]


def each(
    names: tuple[str, ...], read: Callable[[str], T], workers: int, limit_s: float
) -> Iterator[tuple[str, T | None]]:
    """Yield (name, what `read` returned) as it arrives; None where it raised or was not done in time.

    `limit_s` is the time of one name from its own turn on; a late one gives its turn to the next, so that names which
    hang starve nobody. There is a daemon thread per name: one that fails takes no other with it, one that hangs for
    ever holds up neither caller nor process. What comes too late is dropped.
    """
    done: _Answers[T] = queue.SimpleQueue()
    waiting, ends_at_s = deque(dict.fromkeys(names)), dict[str, float]()

    def start() -> None:
        while waiting and len(ends_at_s) < max(workers, 1):
            name = waiting.popleft()
            ends_at_s[name] = time.monotonic() + limit_s
            threading.Thread(target=_work, args=(name, read, done), name=f"ask-{name}", daemon=True).start()

    start()
    while ends_at_s:
        name, result = _next(done, ends_at_s)
        if ends_at_s.pop(name, None) is not None:
            start()
            yield name, result


def _work(name: str, read: Callable[[str], T], done: _Answers[T]) -> None:
    result = None
    try:
        result = read(name)
    finally:
        done.put((name, result))


def _next(done: _Answers[T], ends_at_s: dict[str, float]) -> tuple[str, T | None]:
    """Return the next answer, or the name whose time is over first."""
    late = min(ends_at_s, key=ends_at_s.__getitem__)
    try:
        return done.get(timeout=max(ends_at_s[late] - time.monotonic(), 0.0))
    except queue.Empty:
        return late, None
