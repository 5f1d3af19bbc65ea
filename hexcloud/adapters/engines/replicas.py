"""Replicas: the several engines of one machine as one. Implements ports.Engine."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from hexcloud.domain.generation import EngineInfo, Generation, GenerationRequest, PauseMode
from hexcloud.ports import Engine

T = TypeVar("T")


class Replicas:
    """Each batch goes whole to the engine with the fewest open requests: a group shares its prompt's cache there.

    Everything else is said to all of them at once. Thread-safe.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)
        self._open = [0] * len(self._engines)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(len(self._engines), thread_name_prefix="replicas")

    def close(self) -> None:
        """Let go of the threads; the engines are closed by whoever made them."""
        self._pool.shutdown(wait=False)

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        """Return one generation per request, in order, when all have ended. Raises EngineError."""
        with self._freest(len(requests)) as engine:
            return engine.generate(requests)

    def update_weights_from_disk(self, path: str, version: int) -> None:
        """Load the folder everywhere. Raises EngineError when one engine failed: they may then differ."""
        self._all(lambda engine: engine.update_weights_from_disk(path, version))

    def pause(self, mode: PauseMode) -> None:
        """Stop decoding."""
        self._all(lambda engine: engine.pause(mode))

    def resume(self) -> None:
        """Go on after `pause`."""
        self._all(lambda engine: engine.resume())

    def abort(self, rids: tuple[str, ...]) -> None:
        """End these requests with the tokens they have, wherever they run."""
        self._all(lambda engine: engine.abort(rids))

    def abort_all(self) -> None:
        """End every open request with the tokens it has."""
        self._all(lambda engine: engine.abort_all())

    def is_healthy(self) -> bool:
        """Do all of them answer?"""
        return all(self._all(lambda engine: engine.is_healthy()))

    def info(self) -> EngineInfo:
        """Return which weights the engine that is furthest behind has."""
        return min(self._all(lambda engine: engine.info()), key=lambda info: info.version)

    @contextmanager
    def _freest(self, count: int) -> Iterator[Engine]:
        with self._lock:
            index = min(range(len(self._engines)), key=lambda one: self._open[one])
            self._open[index] += count
        try:
            yield self._engines[index]
        finally:
            with self._lock:
                self._open[index] -= count

    def _all(self, call: Callable[[Engine], T]) -> list[T]:
        """Call every engine, wait for all, then raise the first error there was."""
        calls = [self._pool.submit(call, engine) for engine in self._engines]
        for one in calls:
            one.exception()
        return [one.result() for one in calls]
