from pathlib import Path

import torch
from transformers import Qwen2ForCausalLM

from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_weights import Shelf, deliver
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
        deliver(output, model, SORT_DIGITS)
        loaded = Qwen2ForCausalLM.from_pretrained(output)
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json",
        "model.safetensors",
        "notes.txt",
        "vocab.json",
    ]
