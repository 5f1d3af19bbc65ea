"""Read many regions at once: a few threads, answers as they arrive, and an end that no silent region can put off."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def each(
    names: tuple[str, ...], read: Callable[[str], T], workers: int, limit_s: float
) -> Iterator[tuple[str, T | None]]:
    """Yield (name, what `read` returned) as it arrives; None where it raised or was not done in time.

    `limit_s` is the time of one name; names that wait for their turn get theirs afterwards. There is a daemon thread
    per name: one that fails takes no other with it, one that hangs for ever holds up neither caller nor process.
    """
    done: queue.SimpleQueue[tuple[str, T | None]] = queue.SimpleQueue()
    slots = threading.Semaphore(max(workers, 1))
    stop = threading.Event()

    def work(name: str) -> None:
        with slots:
            result = None
            try:
                result = None if stop.is_set() else read(name)
            finally:
                done.put((name, result))

    rounds = -(-len(names) // max(workers, 1))
    ends_at_s = time.monotonic() + limit_s * rounds
    for name in names:
        threading.Thread(target=work, args=(name,), name=f"ask-{name}", daemon=True).start()
    try:
        yield from _collect(names, done, ends_at_s)
    finally:
        stop.set()


def _collect(
    names: tuple[str, ...], done: "queue.SimpleQueue[tuple[str, T | None]]", ends_at_s: float
) -> Iterator[tuple[str, T | None]]:
    missing = dict.fromkeys(names)
    while missing:
        try:
            name, result = done.get(timeout=max(ends_at_s - time.monotonic(), 0.0))
        except queue.Empty:
            yield from ((name, None) for name in missing)
            return
        del missing[name]
        yield name, result
