import random
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample
from hexcloud.runtime.checkpoint import Counters, load_checkpoint, save_checkpoint
from hexcloud.runtime.checkpoint_index import newest_checkpoint
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_step import StepSettings, TrainingStep, make_optimizer

COUNTERS = Counters(epoch=0, version=3, trained_samples=24, accuracy_before=0.25)


def group(seed: int) -> Group:
    """Four samples of one prompt; only the first is right. Behaviour logprobs are made up."""
    prompt, response = SORT_DIGITS.demonstration(random.Random(seed))
    samples = tuple(
        Sample(
            lease=LeaseId(f"{seed}.{index}"),
            attempt=0,
            group=GroupId(seed),
            index=index,
            epoch=0,
            prompt_ids=prompt,
            tokens=response[index:],
            logprobs=(-3.0,) * len(response[index:]),
            versions=(0,) * len(response[index:]),
            reward=float(index == 0),
        )
        for index in range(2)
    )
    return Group(id=GroupId(seed), samples=samples)


def trainer(seed: int) -> tuple[PreTrainedModel, torch.optim.Optimizer, TrainingStep]:
    model, settings = build_model(SORT_DIGITS, seed), StepSettings()
    optimizer = make_optimizer(model, settings)
    return model, optimizer, TrainingStep(model, optimizer, settings)


def train(step: TrainingStep, steps: range) -> None:
    for number in steps:
        step.run((group(number),), number, random.Random(number))


def test_a_resumed_trainer_goes_on_exactly_like_one_that_never_stopped(tmp_path: Path) -> None:
    model, optimizer, step = trainer(seed=1)
    train(step, range(3))
    info = save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    drawn = torch.rand(3)
    train(step, range(3, 6))

    again, optimizer_again, step_again = trainer(seed=2)
    assert load_checkpoint(info, again, optimizer_again) == COUNTERS
    assert torch.equal(torch.rand(3), drawn)
    train(step_again, range(3, 6))
    for (name, one), (_, other) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_fresh_optimizer_can_be_saved_and_loaded(tmp_path: Path) -> None:
    model, optimizer, _ = trainer(seed=1)
    info = save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    again, optimizer_again, step_again = trainer(seed=2)
    load_checkpoint(info, again, optimizer_again)
    train(step_again, range(1))


def test_the_head_stays_tied_after_loading(tmp_path: Path) -> None:
    model, optimizer, _ = trainer(seed=1)
    info = save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    again, optimizer_again, _ = trainer(seed=2)
    load_checkpoint(info, again, optimizer_again)
    assert again.lm_head.weight is again.model.embed_tokens.weight


@pytest.mark.parametrize("victim", ["__0_0.distcp", ".metadata", "counters.json"])
def test_a_torn_checkpoint_is_refused_before_it_is_unpickled_and_the_one_before_serves(
    tmp_path: Path, victim: str
) -> None:
    model, optimizer, _ = trainer(seed=1)
    good = save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    torn = save_checkpoint(tmp_path, COUNTERS.model_copy(update={"version": 4}), model, optimizer)
    (path,) = torn.path.rglob(victim)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(EngineError, match="torn"):
        load_checkpoint(torn, model, optimizer)
    assert newest_checkpoint(tmp_path) == good


def test_only_the_last_two_are_kept(tmp_path: Path) -> None:
    model, optimizer, _ = trainer(seed=1)
    for version in range(4):
        save_checkpoint(tmp_path, COUNTERS.model_copy(update={"version": version}), model, optimizer)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0-2", "0-3"]


def test_a_torn_checkpoint_makes_room_for_one_of_its_name_and_a_whole_one_does_not(tmp_path: Path) -> None:
    model, optimizer, _ = trainer(seed=1)
    info = save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    with pytest.raises(FileExistsError):
        save_checkpoint(tmp_path, COUNTERS, model, optimizer)
    (info.path / "counters.json").write_text("{")
    assert save_checkpoint(tmp_path, COUNTERS, model, optimizer) == info
    assert load_checkpoint(info, model, optimizer) == COUNTERS
