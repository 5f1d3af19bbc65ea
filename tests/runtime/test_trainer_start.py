from functools import partial
from pathlib import Path

import pytest
import torch

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.training import TrainingSpec
from hexcloud.domain.world import World
from hexcloud.runtime.checkpoint import Counters, save_checkpoint
from hexcloud.runtime.trainer_crew import Crew, Seat
from hexcloud.runtime.trainer_meeting import Meeting
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.trainer_policy import blank
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_start import beginning
from tests.runtime.training import ALONE, small_model, state_of

COUNTERS = Counters(epoch=0, version=3, trained_samples=24, accuracy_before=0.25)


def crew_of(spec: NodeSpec) -> Crew:
    return Crew(Seat(spec, 0), World(nodes=(spec.node_id,)), Meeting("127.0.0.1"))


def test_a_checkpoint_is_enough_to_go_on(rollout_spec: NodeSpec, tmp_path: Path) -> None:
    info = save_checkpoint(tmp_path, COUNTERS, state_of(small_model(5), TrainingSpec()), Ranks(0, ALONE))
    crew = crew_of(rollout_spec)
    assert crew.begin(partial(beginning, rollout_spec, info)) == COUNTERS
    assert torch.equal(crew.gather().lm_head.weight, small_model(5).lm_head.weight)
    assert crew.parameters == 133_120


@pytest.mark.slow
def test_a_new_policy_is_warmed_up_and_is_its_own_reference(rollout_spec: NodeSpec) -> None:
    spec = rollout_spec.model_copy(update={"training": TrainingSpec(kl_weight=0.1)})
    crew = crew_of(spec)
    assert crew.begin(partial(beginning, spec, None)) is None
    assert not torch.equal(crew.gather().lm_head.weight, small_model(spec.seed).lm_head.weight)


@pytest.mark.slow
def test_a_reference_of_another_shape_is_refused_in_words(rollout_spec: NodeSpec, tmp_path: Path) -> None:
    blank(config_of(small_model()) | {"vocab_size": 22}).to_empty(device="cpu").save_pretrained(tmp_path)
    spec = rollout_spec.model_copy(update={"training": TrainingSpec(kl_weight=0.1, reference=str(tmp_path))})
    with pytest.raises(EngineError, match="another vocab_size"):
        beginning(spec, None)
