import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.training import LossKind, TrainingSpec
from hexcloud.runtime.trainer_speed import flops_per_token, mfu


def spec_with(rollout_spec: NodeSpec, training: TrainingSpec) -> NodeSpec:
    return rollout_spec.model_copy(update={"training": training, "rank_tflops": 100.0})


@pytest.mark.parametrize(
    ("training", "passes"),
    [
        (TrainingSpec(loss=LossKind.A3PO), 6.0),
        (TrainingSpec(loss=LossKind.NAIVE), 6.0),
        (TrainingSpec(), 7.5),
        (TrainingSpec(minibatches=1), 6.0),
        (TrainingSpec(loss=LossKind.A3PO, kl_weight=0.1), 8.0),
    ],
)
def test_every_pass_that_a_loss_needs_is_counted(rollout_spec: NodeSpec, training: TrainingSpec, passes: float) -> None:
    assert flops_per_token(1000, spec_with(rollout_spec, training)) == passes * 1000


def test_the_share_is_of_all_ranks_and_unknown_where_the_peak_is(rollout_spec: NodeSpec) -> None:
    spec = spec_with(rollout_spec, TrainingSpec(loss=LossKind.A3PO))
    assert mfu(1e6, 10**7, 2, spec) == pytest.approx(6e13 / 2e14)
    assert mfu(1e6, 10**7, 2, rollout_spec) is None
