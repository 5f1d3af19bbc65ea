import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import Qwen2ForCausalLM

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import WeightsFile, read_weights, write_weights


@pytest.fixture
def written(tmp_path: Path) -> tuple[torch.nn.Module, WeightsFile]:
    model = build_model(SORT_DIGITS, seed=1)
    extra = {"vocab.json": json.dumps(SORT_DIGITS.vocabulary)}
    return model, write_weights(tmp_path / "model", model.state_dict(), config_of(model), extra)


def test_transformers_loads_what_was_written_to_the_bit(written: tuple[torch.nn.Module, WeightsFile]) -> None:
    model, file = written
    loaded = Qwen2ForCausalLM.from_pretrained(file.path.parent)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_the_tied_head_is_not_stored_twice(written: tuple[torch.nn.Module, WeightsFile]) -> None:
    _, file = written
    tensors = read_weights(file.path, file.sha256)
    assert "lm_head.weight" not in tensors
    assert sum(tensor.numel() for tensor in tensors.values()) == 133_120  # the measured model's parameters
    assert file.size == file.path.stat().st_size


def test_an_untied_head_is_stored(tmp_path: Path) -> None:
    state = {"lm_head.weight": torch.ones(2, 2)}
    file = write_weights(tmp_path / "m", state, {"tie_word_embeddings": False})
    assert torch.equal(read_weights(file.path, file.sha256)["lm_head.weight"], torch.ones(2, 2))


def test_extra_files_lie_beside_the_weights(written: tuple[torch.nn.Module, WeightsFile]) -> None:
    _, file = written
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.json",
    ]


def test_the_file_alone_says_which_model_it_is(written: tuple[torch.nn.Module, WeightsFile]) -> None:
    _, file = written
    with safe_open(file.path, framework="pt") as tensors:
        inside = json.loads(tensors.metadata()["config"])
    assert inside == json.loads((file.path.parent / "config.json").read_text())
    assert inside["model_type"] == "qwen2"


def test_torn_or_foreign_weights_are_refused(written: tuple[torch.nn.Module, WeightsFile]) -> None:
    _, file = written
    content = file.path.read_bytes()
    for other in (content[:-4], content[:-1] + bytes([content[-1] ^ 1])):
        file.path.write_bytes(other)
        with pytest.raises(EngineError, match="torn"):
            read_weights(file.path, file.sha256)
    with pytest.raises(EngineError, match="cannot be read"):
        read_weights(file.path.with_name("absent"), file.sha256)
