import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hexcloud.adapters.engines.embedded_weights import read_config, read_weights
from hexcloud.domain.errors import EngineError


@pytest.fixture
def directory(make_model: Any, save_model: Any, tmp_path: Path) -> Path:
    saved: Path = save_model(make_model(seed=3), tmp_path)
    return saved


def edit_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_configuration_of_transformers_is_understood(directory: Path) -> None:
    config = read_config(directory)
    assert (config.vocab, config.hidden, config.layers, config.heads, config.kv_heads) == (21, 32, 2, 4, 2)
    assert (config.head_dim, config.context, config.tied, config.eos_ids) == (8, 64, True, frozenset({2}))
    assert config.rope_theta == 10_000.0


def test_rope_theta_is_found_at_its_older_place_too(directory: Path) -> None:
    edit_config(directory, rope_parameters=None, rope_theta=1e6)
    assert read_config(directory).rope_theta == 1e6


def test_weights_that_describe_themselves_need_no_configuration_file(directory: Path) -> None:
    wanted, path = read_config(directory), directory / "model.safetensors"
    config = directory / "config.json"
    save_file(load_file(path), path, metadata={"format": "pt", "config": config.read_text()})
    config.unlink()
    assert read_config(directory) == wanted


def test_weights_that_do_not_are_refused_without_one(directory: Path) -> None:
    (directory / "config.json").unlink()
    with pytest.raises(EngineError, match="configuration"):
        read_config(directory)


def test_another_kind_of_model_is_refused(directory: Path) -> None:
    edit_config(directory, model_type="gemma3")
    with pytest.raises(EngineError, match="gemma3"):
        read_config(directory)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rope_parameters": {"rope_type": "yarn"}}, "scaled \\(yarn\\)"),
        ({"rope_scaling": {"type": "linear"}, "rope_parameters": None}, "scaled \\(linear\\)"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"mlp_bias": True}, "biases of its own"),
    ],
)
def test_what_the_forward_pass_does_not_know_is_refused(
    directory: Path, changes: dict[str, object], complaint: str
) -> None:
    edit_config(directory, **changes)
    with pytest.raises(EngineError, match=complaint):
        read_config(directory)


def test_a_missing_key_is_named(directory: Path) -> None:
    edit_config(directory, hidden_size=None)
    with pytest.raises(EngineError, match="hidden_size"):
        read_config(directory)


def test_a_missing_folder_is_an_engine_error(directory: Path) -> None:
    with pytest.raises(EngineError):
        read_config(directory / "absent")
    with pytest.raises(EngineError):
        read_weights(directory / "absent", read_config(directory))


def test_a_torn_file_is_refused(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(EngineError, match="cannot be read"):
        read_weights(directory, read_config(directory))


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_a_tensor_that_does_not_fit_is_named(directory: Path, change: str) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    tensors = load_file(directory / "model.safetensors")
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(3, 3)
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(EngineError, match=name):
        read_weights(directory, read_config(directory))
