import pytest
import torch

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start


def settings(accuracy: float, max_steps: int = 4) -> WarmupSettings:
    return WarmupSettings(accuracy=accuracy, batch=8, check_every=2, check_problems=16, max_steps=max_steps)


def test_it_stops_as_soon_as_the_accuracy_is_reached() -> None:
    model = build_model(SORT_DIGITS, seed=0)
    assert warm_start(model, SORT_DIGITS, 0, settings(accuracy=0.0)) == 0.0


def test_a_policy_that_does_not_learn_is_an_error() -> None:
    model = build_model(SORT_DIGITS, seed=0)
    with pytest.raises(EngineError, match="4 steps"):
        warm_start(model, SORT_DIGITS, 0, settings(accuracy=0.9))


def test_equal_seeds_give_equal_policies() -> None:
    weights = []
    for _ in range(2):
        model = build_model(SORT_DIGITS, seed=0)
        warm_start(model, SORT_DIGITS, 7, settings(accuracy=0.0))
        weights.append(model.lm_head.weight.detach())
    assert torch.equal(*weights)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_measured_settings_reach_their_accuracy_in_the_measured_number_of_steps(seed: int) -> None:
    model = build_model(SORT_DIGITS, seed)
    assert 0.30 <= warm_start(model, SORT_DIGITS, seed, WarmupSettings(max_steps=240)) < 0.60
