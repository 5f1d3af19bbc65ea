"""The embedded engine's scheduler: continuous batching between whole steps, without threads or clocks.

Invariant: the running sequences are rows 0..n-1 of the KV cache, in order. Everything that changes weights or
sequences happens between two steps, so every token comes from exactly one version, which is noted beside it.

A request's samples follow from the engine's seed and the request's name alone, not from what shares its batch: so two
nodes of equal seed, or a restarted engine, do not repeat each other's samples within a group.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_weights import Weights
from hexcloud.domain.generation import FinishKind, GenerationRequest, PauseMode

_GREEDY_BELOW = 1e-6
"""Temperatures under this mean greedy choice; their logprobs are those of temperature 1, as in SGLang."""


@dataclass(eq=False)
class Sequence:
    """One open request and what it has so far."""

    request: GenerationRequest
    rng: random.Random
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    """Label of the weights that made each token."""
    finish: FinishKind | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def context(self) -> list[int]:
        """All ids so far, prompt included."""
        return [*self.request.input_ids, *self.tokens]

    def end(self, kind: FinishKind) -> None:
        """Close it and wake whoever waits for it."""
        self.finish = kind
        self.finished.set()


class Scheduler:
    """Waiting and running sequences over one model."""

    def __init__(self, model: Model, max_running: int, seed: int) -> None:
        self.max_running = max_running
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.paused = False
        self.weights: Weights | None = None
        self.version = "-1"
        self._model = model
        self._seed = seed

    @property
    def has_work(self) -> bool:
        """Would a step make tokens?"""
        return self.weights is not None and not self.paused and bool(self.running or self.waiting)

    def is_open(self, rid: str) -> bool:
        """Is there an unfinished request of this name?"""
        return any(sequence.request.rid == rid for sequence in self._open())

    def submit(self, request: GenerationRequest) -> Sequence:
        """Queue a request."""
        sequence = Sequence(request, random.Random(f"{self._seed}/{request.rid}"))
        self.waiting.append(sequence)
        return sequence

    def abort(self, rids: frozenset[str] | None) -> None:
        """End these requests (None: all) with the tokens they have."""
        hit = [sequence for sequence in self._open() if rids is None or sequence.request.rid in rids]
        for sequence in hit:
            sequence.end(FinishKind.ABORT)
        self.waiting = deque(sequence for sequence in self.waiting if sequence.finish is None)
        self._drop_finished()

    def pause(self, mode: PauseMode) -> None:
        """Stop making tokens. What runs is aborted, queued again, or frozen with its cache."""
        self.paused = True
        if mode is PauseMode.ABORT:
            self.abort(None)
        elif mode is PauseMode.RETRACT:
            self._retract()

    def resume(self) -> None:
        """Make tokens again."""
        self.paused = False

    def replace_weights(self, weights: Weights, version: str, flush_cache: bool) -> None:
        """Use other weights from the next step on. Flushing recomputes the cache of what runs under them."""
        self.weights, self.version = weights, version
        if flush_cache:
            self._retract()

    @torch.inference_mode()
    def step(self) -> int:
        """Give every running sequence one token, and newly admitted ones their first; return how many were made."""
        assert self.weights is not None, "step() without weights; ask has_work first"
        decoding, admitted = list(self.running), self._admit()
        if decoding:
            last = torch.tensor([[sequence.context[-1]] for sequence in decoding])
            positions = torch.tensor([[len(sequence.context) - 1] for sequence in decoding])
            self._extend(decoding, self._model.forward(self.weights, last, positions, 0)[:, 0])
        if admitted:
            self._extend(admitted, self._prefill(self.weights, admitted, len(decoding)))
        self._drop_finished()
        return len(decoding) + len(admitted)

    def _open(self) -> Iterable[Sequence]:
        return (*self.running, *self.waiting)

    def _admit(self) -> list[Sequence]:
        room = self.max_running - len(self.running)
        admitted = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        self.running.extend(admitted)
        return admitted

    def _retract(self) -> None:
        self.waiting.extendleft(reversed(self.running))
        self.running.clear()

    def _prefill(self, weights: Weights, sequences: list[Sequence], first_row: int) -> torch.Tensor:
        """Return the logits [rows, vocab] after each sequence's last token."""
        contexts = [sequence.context for sequence in sequences]
        longest = max(map(len, contexts))
        tokens = torch.tensor([context + [0] * (longest - len(context)) for context in contexts])
        positions = torch.arange(longest).expand(len(contexts), longest)
        ends = torch.tensor([len(context) - 1 for context in contexts])
        return self._model.forward(weights, tokens, positions, first_row, ends)[:, 0]

    def _extend(self, sequences: list[Sequence], logits: torch.Tensor) -> None:
        """Sample one token for each sequence from its row of logits."""
        temperatures = torch.tensor([sequence.request.temperature for sequence in sequences])[:, None]
        greedy = temperatures < _GREEDY_BELOW
        logprobs = (logits / temperatures.masked_fill(greedy, 1.0)).log_softmax(-1)
        chosen = torch.where(greedy, logprobs.argmax(-1, keepdim=True), _draw(sequences, logprobs))
        tokens, chances = chosen[:, 0].tolist(), logprobs.gather(1, chosen)[:, 0].tolist()
        for sequence, token, logprob in zip(sequences, tokens, chances, strict=True):
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            sequence.versions.append(self.version)
            self._end_if_complete(sequence)

    def _end_if_complete(self, sequence: Sequence) -> None:
        request, last = sequence.request, sequence.tokens[-1]
        ends = last in request.stop_token_ids or last in self._model.config.eos_ids
        if ends and not request.ignore_eos:
            sequence.end(FinishKind.STOP)
        elif len(sequence.tokens) >= request.max_new_tokens:
            sequence.end(FinishKind.LENGTH)

    def _drop_finished(self) -> None:
        """Fill the rows of finished sequences from the back, so that running rows stay together."""
        for row in reversed(range(len(self.running))):
            if self.running[row].finish is None:
                continue
            last = self.running.pop()
            if row < len(self.running):
                self.running[row] = last
                self._model.cache.move(len(self.running), row)


def _draw(sequences: list[Sequence], logprobs: torch.Tensor) -> torch.Tensor:
    """Return one token per row [rows, 1] by inverting its distribution at a point from the row's own generator."""
    points = torch.tensor([[1.0 - sequence.rng.random()] for sequence in sequences], dtype=torch.float64)
    cumulated = logprobs.double().exp().cumsum(-1)
    return (cumulated < points * cumulated[:, -1:]).sum(-1, keepdim=True)
