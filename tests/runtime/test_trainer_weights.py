import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, Qwen2ForCausalLM

from hexcloud.domain.errors import EngineError
from hexcloud.domain.training import Precision, TrainingSpec
from hexcloud.runtime.delta import apply_delta
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_step import Moment, TrainingStep
from hexcloud.runtime.trainer_weights import DELTAS_KEPT, Shelf, deliver, vocabulary_files
from hexcloud.runtime.weights import read_weights
from tests.runtime.training import ALONE, groups_of, right_and_wrong, state_of


def test_the_newest_versions_stay_on_the_shelf(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    shelf = Shelf(tmp_path, epoch=0)
    files = [shelf.put(model, version).file for version in range(7)]
    assert [file.path.exists() for file in files] == [False] * 3 + [True] * 4
    read_weights(files[-1].path, files[-1].sha256)


def test_a_new_epoch_clears_what_earlier_ones_published(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    old = Shelf(tmp_path, epoch=0).put(model, 5).file
    new = Shelf(tmp_path, epoch=1).put(model, 5).file
    assert not old.path.exists() and new.path.exists()


def test_the_result_is_laid_beside_what_the_folder_holds_and_replaces_an_older_result(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    for seed in (0, 1):
        model = build_model(SORT_DIGITS, seed)
        deliver(output, model, vocabulary_files(SORT_DIGITS, None))
        loaded = Qwen2ForCausalLM.from_pretrained(output)
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json",
        "model.safetensors",
        "notes.txt",
        "vocab.json",
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_never_reach_the_shelf(tmp_path: Path, bad: float) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    with torch.no_grad():
        model.model.norm.weight[3] = bad
    with pytest.raises(EngineError, match="not finite"):
        Shelf(tmp_path, epoch=0).put(model, 1)
    assert not (tmp_path / "weights").exists()


def test_a_damaged_file_is_restored_to_the_bit_and_only_from_its_own_weights(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    shelf = Shelf(tmp_path, epoch=0)
    file = shelf.put(model, 1).file
    file.path.write_bytes(b"torn")
    shelf.restore(model, file)
    read_weights(file.path, file.sha256)
    with pytest.raises(EngineError, match="damaged"):
        shelf.restore(build_model(SORT_DIGITS, seed=1), file)


def nudged(model: PreTrainedModel, share: float) -> None:
    """Change about this share of every weight by a step or so of its last bit, as a small learning rate does."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(torch.where(torch.rand_like(tensor) < share, tensor * (1 + 2**-22), tensor))


def test_a_version_is_also_told_as_what_changed_where_that_is_a_gain(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    shelf = Shelf(tmp_path, epoch=0)
    first = shelf.put(model, 0)
    nudged(model, 0.02)
    second = shelf.put(model, 1)
    assert first.delta is None and second.delta is not None
    told = second.delta.delta
    assert told.size < 0.1 * second.file.size
    assert (told.base.sha256, told.result.sha256) == (first.file.sha256, second.file.sha256)
    apply_delta(first.file.path, (Path(second.delta.path), told), tmp_path / "made")
    assert (tmp_path / "made").read_bytes() == second.file.path.read_bytes()


def test_where_deltas_are_no_gain_they_are_tried_ever_more_seldom_and_leave_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, epoch=0)
    for version in range(6):
        assert shelf.put(build_model(SORT_DIGITS, seed=version), version).delta is None
    model = build_model(SORT_DIGITS, seed=6)
    gained = [version for version in range(6, 16) if _put_nudged(shelf, model, version)]
    assert gained and gained[0] > 6 and gained == list(range(gained[0], 16)), "once they are a gain, all are made"
    assert len(list((tmp_path / "weights").glob("*.delta"))) <= DELTAS_KEPT


def _put_nudged(shelf: Shelf, model: PreTrainedModel, version: int) -> bool:
    nudged(model, 0.01)
    return shelf.put(model, version).delta is not None


def test_a_damaged_base_costs_the_delta_and_not_the_version(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    shelf = Shelf(tmp_path, epoch=0)
    shelf.put(model, 0).file.path.write_bytes(b"torn")
    nudged(model, 0.01)
    second = shelf.put(model, 1)
    assert second.delta is None
    read_weights(second.file.path, second.file.sha256)


def test_a_bf16_trainer_publishes_and_delivers_what_its_own_forward_pass_sees(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    file = Shelf(tmp_path, epoch=0, precision=Precision.BF16).put(model, 0).file
    deliver(tmp_path / "output", model, {}, Precision.BF16)
    masters = dict(model.named_parameters())
    published, result = read_weights(file.path, file.sha256), load_file(tmp_path / "output" / "model.safetensors")
    assert published.keys() == result.keys() == masters.keys()
    for name, weight in masters.items():
        assert weight.dtype == torch.float32, "the trainer's own stay as they are"
        assert torch.equal(published[name], weight.detach().bfloat16()) and torch.equal(result[name], published[name])
    assert json.loads((file.path.parent / "config.json").read_text())["dtype"] == "bfloat16"
    assert Qwen2ForCausalLM.from_pretrained(tmp_path / "output").dtype == torch.bfloat16


@pytest.mark.parametrize("rate", [2e-5, 1e-6])
def test_at_rates_of_rl_bf16_versions_are_told_by_a_small_delta_and_fp32_ones_whole(
    tmp_path: Path, rate: float
) -> None:
    settings = TrainingSpec(learning_rate=rate, ramp_steps=1)
    state = state_of(model := build_model(SORT_DIGITS, seed=0), settings)
    groups = groups_of(model, right_and_wrong(4))
    shelves = {kind: Shelf(tmp_path / kind, 0, kind) for kind in Precision}
    told: dict[Precision, list[float]] = {kind: [] for kind in Precision}
    for version in range(4):
        for kind, shelf in shelves.items():
            published = shelf.put(state.policy.model, version)
            told[kind].append(published.delta.delta.size / published.file.size if published.delta else 1.0)
        TrainingStep(state, Ranks(0, ALONE), settings).run(groups, Moment(version, 10), random.Random(version))
    assert told[Precision.FP32] == [1.0] * 4
    assert told[Precision.BF16][0] == 1.0 and max(told[Precision.BF16][1:]) < (0.4 if rate > 1e-5 else 0.1)
