"""profile: how fast a full engine is, measured from outside by what it is asked for and how long that takes."""

import random
import statistics
import time
from dataclasses import dataclass

from hexcloud.domain.generation import GenerationRequest
from hexcloud.ports import Engine

WARM_UP_TOKENS = 4
"""Enough for an engine to capture its graphs and fill its caches of compiled kernels."""


@dataclass(frozen=True)
class Load:
    """Equal requests that arrive at once."""

    batch: int
    prompt_tokens: int
    response_tokens: int
    vocab: int
    """Prompts are random ids below this: no two share a prefix that an engine could have cached."""


def tokens_per_s(engine: Engine, load: Load, rounds: int = 3, seed: int = 0) -> float:
    """Return output tokens per second of wall time, prefill included: the median of some rounds after a warm-up.

    Raises EngineError, also for lengths that the engine refuses.
    """
    rng = random.Random(seed)
    engine.generate(_requests(load, rng, min(WARM_UP_TOKENS, load.response_tokens)))
    return statistics.median(_round(engine, load, rng) for _ in range(rounds))


def _round(engine: Engine, load: Load, rng: random.Random) -> float:
    requests = _requests(load, rng, load.response_tokens)
    begun_s = time.perf_counter()
    generations = engine.generate(requests)
    seconds = time.perf_counter() - begun_s
    return sum(len(generation.tokens) for generation in generations) / seconds


def _requests(load: Load, rng: random.Random, response_tokens: int) -> tuple[GenerationRequest, ...]:
    return tuple(
        GenerationRequest(
            rid=f"profile-{rng.getrandbits(64):016x}",
            input_ids=tuple(rng.randrange(load.vocab) for _ in range(load.prompt_tokens)),
            max_new_tokens=response_tokens,
            ignore_eos=True,
        )
        for _ in range(load.batch)
    )
