"""The embedded engine behind its HTTP API: the scheduler, driven at its pace by the event loop.

HTTP handlers run between decode steps of the same loop, so nothing here needs a lock.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_pace import Pace
from hexcloud.adapters.engines.embedded_protocol import UpdateWeightsBody
from hexcloud.adapters.engines.embedded_scheduler import Scheduler, Sequence
from hexcloud.adapters.engines.embedded_weights import read_config, read_weights
from hexcloud.domain.generation import GenerationRequest


@dataclass(frozen=True)
class Settings:
    """How one engine runs."""

    model_path: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one; read it from `port_file`."""
    port_file: Path | None = None
    max_running_requests: int = 64
    context_length: int | None = None
    """Most tokens of one sequence; None: what the model takes. Memory for all slots is set aside by it."""
    tokens_per_s: float | None = None
    """Emulated speed; None: as fast as this machine can."""
    random_seed: int = 0
    parent_pid: int | None = None
    """End when this process is no longer the parent: an engine whose agent was killed must not linger."""


class Engine:
    """The scheduler with a pace, driven by the event loop."""

    def __init__(self, settings: Settings) -> None:
        """Load the model. Without `model.safetensors` beside its config it starts empty and waits for an update."""
        self.settings = settings
        self.model_path = settings.model_path
        config = read_config(settings.model_path)
        self.config = replace(config, context=min(config.context, settings.context_length or config.context))
        self.scheduler = Scheduler(
            Model(self.config, settings.max_running_requests), settings.max_running_requests, settings.random_seed
        )
        self._pace = Pace(settings.tokens_per_s)
        self._wake = asyncio.Event()
        self.step_sleep_s = 0.0
        """Added to every step, as SGLang's /slow_down does: what takes milliseconds can then be caught in flight."""
        if (settings.model_path / "model.safetensors").exists():
            self.load(UpdateWeightsBody(model_path=str(settings.model_path), weight_version="default"))

    async def run(self) -> None:
        """Make tokens for ever; sleep without cost while there is nothing to do."""
        while True:
            while not self.scheduler.has_work:
                self._wake.clear()
                await self._wake.wait()
            made = self.scheduler.step()
            await asyncio.sleep(self._pace.charge(made, time.monotonic()) + self.step_sleep_s)

    def wake(self) -> None:
        """Look at the scheduler again: something has changed."""
        self._wake.set()

    def refusal(self, request: GenerationRequest) -> str | None:
        """Say why a request cannot be served, or None when it can."""
        vocab, context = self.config.vocab, self.config.context
        if any(not 0 <= token < vocab for token in request.input_ids):
            return f"input_ids must be in [0, {vocab}), got {min(request.input_ids)} to {max(request.input_ids)}"
        if len(request.input_ids) + request.max_new_tokens > context:
            return (
                f"{len(request.input_ids)} prompt tokens + max_new_tokens {request.max_new_tokens} "
                f"exceed the context of {context}"
            )
        return f"rid {request.rid!r} is already running" if self.scheduler.is_open(request.rid) else None

    async def generate(self, requests: list[GenerationRequest]) -> list[Sequence]:
        """Run requests to their end."""
        sequences = [self.scheduler.submit(request) for request in requests]
        self.wake()
        for sequence in sequences:
            await sequence.finished.wait()
        return sequences

    def load(self, body: UpdateWeightsBody) -> None:
        """Load weights between two steps. Raises EngineError and keeps the old ones when they cannot be read."""
        weights = read_weights(Path(body.model_path), self.config)
        if body.abort_all_requests:
            self.scheduler.abort(None)
        self.model_path = Path(body.model_path)
        self.scheduler.replace_weights(weights, body.weight_version or self.scheduler.version, body.flush_cache)
        self.wake()
