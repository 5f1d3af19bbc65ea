"""EngineKeeper: the engine beside the agent, which weights it serves, and its restarts.

Invariant: the engine generates only with weights that it has wholly loaded. A load that failed leaves it dirty, so it
is replaced by a fresh one that starts from the new weights; what was being generated meanwhile is thrown away. An
engine that is asked again and again and makes nothing is replaced however well it says that it is.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog

from hexcloud.domain.errors import EngineError, RequestRefusedError
from hexcloud.domain.generation import Generation, GenerationRequest
from hexcloud.domain.messages import WeightsManifest
from hexcloud.ports import Engine

MAX_RESTARTS = 2
"""In a row, without one generation between them: more is not bad luck but a broken machine."""
MAX_FAILURES = 3
"""Times in a row, without one generation between them, that an engine may fail and be asked again as it is."""

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
        self._failures = 0
        """Times that `heal` was called for since the last generation."""
        self._is_up = self._is_hung = self._is_suspect = False
        self._settled = asyncio.Event()
        """Is no load under way?"""
        self._settled.set()
        self._open = 0
        self._last_error = ""
        self._token_s: float | None = None
        """Of the slowest batch of late, per token of its longest sequence."""
        self.loaded: WeightsManifest | None = None

    @property
    def is_serving(self) -> bool:
        """Would a batch be generated at once?"""
        return self._is_up and self._settled.is_set()

    @property
    def is_paused(self) -> bool:
        """Does it generate nothing, or not at its pace: not started yet, failed, or just taking weights?"""
        return not self.is_serving or self._lock.locked()

    async def load(self, manifest: WeightsManifest, directory: Path) -> None:
        """Make the engine serve these weights; start it when it is the first time. Raises EngineDeadError."""
        async with self._lock:
            self._source = manifest, directory
            self._settled.clear()
            try:
                await self._load_or_restart(manifest, directory)
            finally:
                self._settled.set()

    async def _load_or_restart(self, manifest: WeightsManifest, directory: Path) -> None:
        if self._engine is None:
            await self._restart()
            return
        try:
            await self._run(self._engine.update_weights_from_disk, str(directory), manifest.version)
            self.loaded = manifest
        except EngineError as error:
            self._last_error = str(error)
            log.warning("weights_load_failed", version=manifest.version, reason=self._last_error)
            await self._restart()

    async def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation | None, ...]:
        """Generate one batch; None for a request that the engine refuses while it takes others of the batch.

        Waits while weights are loaded. Raises EngineError when nothing was made; call `heal` then.
        """
        try:
            return await self._batch(requests)
        except RequestRefusedError:
            if len(requests) == 1:
                raise
        return await self._singly(requests)

    async def _singly(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation | None, ...]:
        """Ask for each alone: one that is refused takes no other with it. Raises the first error when all fail."""
        calls = (self._batch((request,)) for request in requests)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        errors = [one for one in answers if isinstance(one, BaseException)]
        unlike = [error for error in errors if not isinstance(error, RequestRefusedError)]
        if len(errors) == len(answers) or unlike:
            raise (unlike or errors)[0]
        for error in errors:
            log.warning("request_refused", reason=str(error))
        return tuple(None if isinstance(one, BaseException) else one[0] for one in answers)

    async def _batch(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        await self._settled.wait()
        engine = self._engine
        if engine is None or not self._is_up:
            raise EngineError("no engine serves now")
        begun_s = time.monotonic()
        self._open += 1
        try:
            generations = await self._answer(engine, requests)
        except RequestRefusedError as error:
            self._note_failure(engine, error, is_up=True)
            raise
        except EngineError as error:
            self._note_failure(engine, error, is_up=False)
            raise
        finally:
            self._open -= 1
        if any(generation.tokens for generation in generations):  # else they were aborted: that proves nothing
            self._restarts, self._failures, self._is_suspect = 0, 0, False
        self._note_pace(generations, time.monotonic() - begun_s)
        return generations

    async def _answer(self, engine: Engine, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        patience_s = self._patience_s(requests)
        try:
            async with asyncio.timeout(patience_s):
                generations = await self._run(engine.generate, requests)
        except TimeoutError:
            self._is_hung = engine is self._engine
            raise EngineError(
                f"the engine hangs: {len(requests)} requests without an answer for {patience_s:.0f} s"
            ) from None
        await self._settled.wait()
        if engine is not self._engine:
            raise EngineError(
                "thrown away: the engine was replaced meanwhile, and its weights may have been half loaded"
            )
        return generations

    def _note_failure(self, engine: Engine, error: EngineError, is_up: bool) -> None:
        """Remember a failed batch. A refusal is the engine's fault, if at all, when it has nothing else to do."""
        if engine is not self._engine:
            return  # replaced meanwhile
        self._is_up = self._is_up and is_up
        self._is_suspect = self._is_suspect or not is_up or self._open == 1
        self._last_error = str(error)

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
        """After a failed batch: replace the engine unless it answers, and has not failed too often.

        Raises EngineDeadError.
        """
        async with self._lock:
            self._failures += self._is_suspect
            self._is_suspect = False
            is_worth_asking = not self._is_hung and self._failures < MAX_FAILURES
            if is_worth_asking and self._engine is not None and await self._run(self._engine.is_healthy):
                self._is_up = True
                return
            log.warning("engine_replaced", failures=self._failures, reason=self._last_error)
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
        self._is_up, self._engine, self.loaded = False, None, None
        if self._source is None:
            raise EngineDeadError("the engine died before it had weights")
        manifest, directory = self._source
        while self._restarts <= MAX_RESTARTS:
            self._restarts += 1
            log.info("engine_start", attempt=self._restarts, version=manifest.version)
            try:
                self._engine = await self._run(self._start, directory, manifest.version)
            except EngineError as error:
                self._last_error = str(error)
                log.warning("engine_start_failed", reason=self._last_error)
                continue
            self.loaded, self._failures = manifest, 0
            self._is_up, self._is_hung, self._is_suspect = True, False, False
            return
        raise EngineDeadError(f"the engine failed {self._restarts} times in a row, at last: {self._last_error}")

    async def _try(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await self._run(call, *args, **kwargs)
        except EngineError as error:
            log.warning("engine_call_failed", reason=str(error))

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))
