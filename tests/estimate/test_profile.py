import math

import pytest

from hexcloud.domain.calibration import Efficiency, ModelClass, Phase
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.estimate.profile import LEAST, MOST, EngineLoad, engine_tokens_per_s, factor
from hexcloud.estimate.rollout import Replica


def test_an_engine_is_expected_to_make_what_the_estimate_says(
    models: dict[str, ModelSpec], h800: GpuSpec, fast: Efficiency
) -> None:
    """TensorRT-LLM makes 13,899 tok/s of an 8B in FP8 at 1000 + 2000 tokens on this die; bf16 about half of it."""
    found = engine_tokens_per_s(Replica(h800, fast, 1, 256), EngineLoad(1000, 2000), models["7B"])
    assert 5_000 < found < 12_000


def test_a_measured_speed_makes_the_estimate_that_much_faster(
    models: dict[str, ModelSpec], h800: GpuSpec, fast: Efficiency
) -> None:
    load = EngineLoad(512, 256)
    slow = fast.model_copy(update={"rollout_speed": 0.8})
    expected = engine_tokens_per_s(Replica(h800, fast, 1, 64), load, models["7B"])
    assert engine_tokens_per_s(Replica(h800, slow, 1, 64), load, models["7B"]) == pytest.approx(0.8 * expected)


def test_a_factor_is_about_the_models_class(models: dict[str, ModelSpec]) -> None:
    found = factor("H800", Phase.ROLLOUT, models["14B"], 0.93, "measured")
    assert found is not None
    assert found.key == ("H800", Phase.ROLLOUT, ModelClass.LARGE)
    assert found.speed == 0.93


@pytest.mark.parametrize("speed", [0.0, LEAST / 2, MOST * 2, math.inf, math.nan])
def test_what_cannot_be_true_is_no_factor(models: dict[str, ModelSpec], speed: float) -> None:
    assert factor("H800", Phase.ROLLOUT, models["7B"], speed, "measured") is None
