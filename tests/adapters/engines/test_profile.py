"""A real engine whose speed is known is measured as that fast."""

from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.engines.profile import Load, tokens_per_s
from hexcloud.domain.errors import EngineError

CAP_TOKENS_PER_S = 400.0
LOAD = Load(batch=16, prompt_tokens=4, response_tokens=40, vocab=21)


def test_an_engine_of_known_speed_is_measured(models: Any, start_engine: Any) -> None:
    speed = ("--max-samples-per-s", "10", "--mean-tokens-per-sample", "40")
    engine = start_engine(Path(models["paths"][1]), *speed)
    assert tokens_per_s(engine, LOAD, rounds=1) == pytest.approx(CAP_TOKENS_PER_S, rel=0.2)


def test_lengths_over_the_engines_context_are_its_own_refusal(models: Any, start_engine: Any) -> None:
    engine = start_engine(Path(models["paths"][1]))
    with pytest.raises(EngineError, match="context"):
        tokens_per_s(engine, Load(batch=1, prompt_tokens=60, response_tokens=60, vocab=21), rounds=1)
