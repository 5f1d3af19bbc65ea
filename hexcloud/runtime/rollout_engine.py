"""EngineKeeper: the engine beside the agent, which weights it serves, and its restarts.

Invariant: the engine generates only with weights that it has wholly loaded. A load that failed leaves it dirty, so it
is replaced by a fresh one that starts from the new weights.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import Generation, GenerationRequest
from hexcloud.domain.messages import WeightsManifest
from hexcloud.ports import Engine

MAX_RESTARTS = 2
"""In a row, without one generation between them: more is not bad luck but a broken machine."""

FIRST_PATIENCE_S = 300.0
"""For a batch before one has ended: kernels may be compiled first."""
PATIENCE_S = 30.0
"""For any batch, however short."""
SLOWER = 10.0
"""An engine that takes so many times what it took per token hangs, or might as well."""

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger()

StartEngine = Callable[[Path, int], Engine]
"""Ends the engine that runs, if any, and returns a new one that serves this directory's weights as this version.

Blocks until it answers. Raises EngineError.
"""


class EngineDeadError(EngineError):
    """The engine failed again and again: this machine is of no use."""


class EngineKeeper:
    """Starts, loads and restarts one engine. The engine's calls block, so they run on threads of their own."""

    def __init__(self, start: StartEngine, threads: int) -> None:
        self._start = start
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="engine")
        self._engine: Engine | None = None
        self._source: tuple[WeightsManifest, Path] | None = None
        self._lock = asyncio.Lock()
        self._restarts = 0
        self._is_hung = False
        self._token_s: float | None = None
        """Of the slowest batch of late, per token of its longest sequence."""
        self.is_serving = False
        self.loaded: WeightsManifest | None = None

    @property
    def is_paused(self) -> bool:
        """Does it generate nothing, or not at its pace: not started yet, failed, or just taking weights?"""
        return not self.is_serving or self._lock.locked()

    async def load(self, manifest: WeightsManifest, directory: Path) -> None:
        """Make the engine serve these weights; start it when it is the first time. Raises EngineDeadError."""
        async with self._lock:
            self._source = manifest, directory
            if self._engine is None:
                await self._restart()
                return
            try:
                await self._run(self._engine.update_weights_from_disk, str(directory), manifest.version)
                self.loaded = manifest
            except EngineError as error:
                log.warning("weights_load_failed", version=manifest.version, reason=str(error))
                await self._restart()

    async def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        """Generate one batch. Raises EngineError; the engine then serves no more until `heal`."""
        engine = self._engine
        if engine is None or not self.is_serving:
            raise EngineError("no engine serves now")
        begun_s, patience_s = time.monotonic(), self._patience_s(requests)
        try:
            async with asyncio.timeout(patience_s):
                generations = await self._run(engine.generate, requests)
        except TimeoutError:
            self._is_hung = engine is self._engine
            self.is_serving = self.is_serving and not self._is_hung
            raise EngineError(
                f"the engine hangs: {len(requests)} requests without an answer for {patience_s:.0f} s"
            ) from None
        except EngineError:
            self.is_serving = self.is_serving and engine is not self._engine  # it may have been replaced meanwhile
            raise
        self._restarts = 0
        self._note_pace(generations, time.monotonic() - begun_s)
        return generations

    def _patience_s(self, requests: tuple[GenerationRequest, ...]) -> float:
        if self._token_s is None:
            return FIRST_PATIENCE_S
        longest = max((request.max_new_tokens for request in requests), default=0)
        return max(PATIENCE_S, SLOWER * self._token_s * longest)

    def _note_pace(self, generations: tuple[Generation, ...], seconds: float) -> None:
        longest = max((len(generation.tokens) for generation in generations), default=0)
        if longest:
            self._token_s = max(seconds / longest, 0.9 * (self._token_s or 0.0))

    async def heal(self) -> None:
        """After a failed batch: replace the engine unless it answers. Raises EngineDeadError."""
        async with self._lock:
            is_worth_asking = self._engine is not None and not self._is_hung
            if is_worth_asking and self._engine is not None and await self._run(self._engine.is_healthy):
                self.is_serving = True
                return
            await self._restart()

    async def abort(self, request_ids: tuple[str, ...]) -> None:
        """End these requests with the tokens they have; a dead engine has none running."""
        if self._engine is not None and request_ids:
            await self._try(self._engine.abort, request_ids)

    async def abort_all(self) -> None:
        """End every request with the tokens it has."""
        if self._engine is not None:
            await self._try(self._engine.abort_all)

    def close(self) -> None:
        """Let go of the threads; the engine itself is ended by whoever starts it."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _restart(self) -> None:
        """Start an engine from the newest weights, up to MAX_RESTARTS + 1 times in a row."""
        self.is_serving = False
        self.loaded = None
        if self._source is None:
            raise EngineDeadError("the engine died before it had weights")
        manifest, directory = self._source
        while self._restarts <= MAX_RESTARTS:
            self._restarts += 1
            log.info("engine_start", attempt=self._restarts, version=manifest.version)
            try:
                self._engine = await self._run(self._start, directory, manifest.version)
            except EngineError as error:
                log.warning("engine_start_failed", reason=str(error))
                continue
            self.loaded = manifest
            self.is_serving, self._is_hung = True, False
            return
        raise EngineDeadError(f"the engine failed {self._restarts} times in a row")

    async def _try(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await self._run(call, *args, **kwargs)
        except EngineError as error:
            log.warning("engine_call_failed", reason=str(error))

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))
