import pytest
from pydantic import ValidationError

from hexcloud.domain.training import Decay, LossKind, TrainingSpec


def test_the_rate_ramps_up_and_then_stays_or_decays_to_its_rest() -> None:
    rates = {
        decay: [TrainingSpec(decay=decay, ramp_steps=4, decay_to=0.2).rate_at(step, 25) for step in (0, 3, 4, 14, 24)]
        for decay in Decay
    }
    assert rates[Decay.CONSTANT] == [0.25, 1.0, 1.0, 1.0, 1.0]
    assert rates[Decay.LINEAR] == pytest.approx([0.25, 1.0, 1.0, 0.6, 0.2])
    assert rates[Decay.COSINE] == pytest.approx([0.25, 1.0, 1.0, 0.6, 0.2])


def test_a_run_shorter_than_its_ramp_has_a_rate_at_every_step() -> None:
    spec = TrainingSpec(decay=Decay.COSINE, ramp_steps=10)
    assert [spec.rate_at(step, 3) for step in range(3)] == pytest.approx([0.1, 0.2, 0.3])


def test_only_two_kinds_of_loss_need_the_policy_of_the_steps_start() -> None:
    needing = {kind for kind in LossKind if TrainingSpec(loss=kind).recomputes_prox}
    assert needing == {LossKind.DECOUPLED, LossKind.UNCORRECTED}


def test_a_reference_without_a_weight_is_a_mistake_that_is_told() -> None:
    with pytest.raises(ValidationError, match="kl_weight above 0"):
        TrainingSpec(reference="./model")


@pytest.mark.parametrize("field", ["learning_rate", "weight_decay", "kl_weight", "max_grad_norm"])
def test_nothing_is_infinite(field: str) -> None:
    with pytest.raises(ValidationError, match="finite"):
        TrainingSpec.model_validate({field: float("inf")})
