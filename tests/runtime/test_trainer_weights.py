from pathlib import Path

import pytest
import torch
from transformers import Qwen2ForCausalLM

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_weights import Shelf, deliver, vocabulary_files
from hexcloud.runtime.weights import read_weights


def test_the_newest_versions_stay_on_the_shelf(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    shelf = Shelf(tmp_path, epoch=0)
    files = [shelf.put(model, version) for version in range(7)]
    assert [file.path.exists() for file in files] == [False] * 3 + [True] * 4
    read_weights(files[-1].path, files[-1].sha256)


def test_a_new_epoch_clears_what_earlier_ones_published(tmp_path: Path) -> None:
    model = build_model(SORT_DIGITS, seed=0)
    old = Shelf(tmp_path, epoch=0).put(model, 5)
    new = Shelf(tmp_path, epoch=1).put(model, 5)
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
    file = shelf.put(model, 1)
    file.path.write_bytes(b"torn")
    shelf.restore(model, file)
    read_weights(file.path, file.sha256)
    with pytest.raises(EngineError, match="damaged"):
        shelf.restore(build_model(SORT_DIGITS, seed=1), file)
