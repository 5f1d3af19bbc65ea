"""A GPU nobody measured gets the default row; a factor of its own phase and class of models wins over a general one."""

import pytest

from hexcloud.domain.calibration import Calibration, Efficiency, Factor, ModelClass, Phase, class_of
from hexcloud.domain.model import ModelSpec


def model(params: float) -> ModelSpec:
    shape = {"layers": 1, "hidden": 8, "heads": 1, "kv_heads": 1, "head_dim": 8, "intermediate": 8, "vocab": 8}
    return ModelSpec.model_validate({"name": "made up", "params": int(params), "source": "made up", **shape})


def factor(speed: float, gpu: str = "H100", model_class: str = "*", phase: Phase = Phase.ROLLOUT) -> Factor:
    return Factor(gpu=gpu, phase=phase, model_class=ModelClass(model_class), speed=speed, source="made up")


DEFAULT = Efficiency(gpu="*", bandwidth=0.7, compute=0.5, mfu=0.35, source="made up")


def test_unknown_gpu_falls_back_to_the_default_row() -> None:
    h100 = DEFAULT.model_copy(update={"gpu": "H100-SXM", "mfu": 0.4})
    calibration = Calibration(efficiencies=(DEFAULT, h100), source="made up")
    assert calibration.of("H100-SXM") is h100
    assert calibration.of("never heard of") is DEFAULT


@pytest.mark.parametrize(
    ("params", "expected"), [(1.5e9, "small"), (3.1e9, "medium"), (8e9, "medium"), (14e9, "large")]
)
def test_models_have_a_class_by_size(params: float, expected: str) -> None:
    assert class_of(model(params)) is ModelClass(expected)


def test_the_most_specific_factor_counts() -> None:
    factors = (
        factor(0.5, gpu="*"),
        factor(0.6, gpu="*", model_class="large"),
        factor(0.8),
        factor(0.9, "H100", "large"),
    )
    calibration = Calibration(efficiencies=(DEFAULT,), factors=factors, source="made up")
    assert calibration.of("H100", model(14e9)).rollout_speed == 0.9
    assert calibration.of("H100", model(7e9)).rollout_speed == 0.8
    assert calibration.of("H100").rollout_speed == 0.8
    assert calibration.of("L4", model(14e9)).rollout_speed == 0.6
    assert calibration.of("L4", model(7e9)).rollout_speed == 0.5


def test_a_factor_counts_in_its_own_phase_only() -> None:
    calibration = Calibration(efficiencies=(DEFAULT,), factors=(factor(0.4, phase=Phase.TRAINING),), source="made up")
    found = calibration.of("H100", model(7e9))
    assert (found.rollout_speed, found.training_speed) == (1.0, 0.4)


def test_a_later_factor_of_the_same_key_wins() -> None:
    calibration = Calibration(efficiencies=(DEFAULT,), factors=(factor(0.8),), source="made up")
    assert calibration.with_factors((factor(1.1),)).of("H100").rollout_speed == 1.1


def test_what_was_asked_before_is_no_part_of_what_a_calibration_is() -> None:
    asked, fresh = (Calibration(efficiencies=(DEFAULT,), factors=(factor(0.8),), source="made up") for _ in range(2))
    asked.of("H100", model(7e9))
    assert asked == fresh
    assert Calibration.model_validate_json(asked.model_dump_json()) == fresh
    assert asked.with_factors((factor(0.5),)).of("H100", model(7e9)).rollout_speed == 0.5
    assert asked.without_factors().of("H100", model(7e9)).rollout_speed == 1.0
