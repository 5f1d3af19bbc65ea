"""What the estimator expects of a full engine, and the factor by which a measurement differs from an estimate."""

import math
from dataclasses import dataclass

from hexcloud.domain.calibration import Factor, Phase, class_of
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout
from hexcloud.estimate.rollout import Replica

LEAST, MOST = 0.02, 10.0
"""A measurement further off is not of what it is said to be."""


@dataclass(frozen=True)
class EngineLoad:
    """Equal requests that a full engine answers at once."""

    prompt_tokens: int
    response_tokens: int


def engine_tokens_per_s(replica: Replica, load: EngineLoad, model: ModelSpec) -> float:
    """Return the output tokens per second that the estimator expects, prefill included."""
    job = Workload(
        model=model,
        prompt_tokens=load.prompt_tokens,
        response_tokens=load.response_tokens,
        response_cv=0.0,
        max_response_tokens=load.response_tokens,
    )
    return rollout.samples_per_s(replica, job) * load.response_tokens


def factor(gpu: str, phase: Phase, model: ModelSpec, speed: float, source: str) -> Factor | None:
    """Return a measured over an estimated speed as a row of the calibration; None when it cannot be true."""
    if not (math.isfinite(speed) and LEAST <= speed <= MOST):
        return None
    return Factor(gpu=gpu, phase=phase, model_class=class_of(model), speed=round(speed, 4), source=source)
