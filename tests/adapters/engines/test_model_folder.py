import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hexcloud.adapters.engines.model_folder import ModelFacts, read_context, read_model_facts, read_shapes
from hexcloud.domain.errors import EngineError


def save(folder: Path, name: str, **shapes: tuple[int, ...]) -> None:
    folder.mkdir(exist_ok=True)
    save_file({key: torch.zeros(shape) for key, shape in shapes.items()}, folder / name, metadata={"format": "pt"})


def test_the_facts_of_a_folder_are_its_vocabulary_and_its_shapes_over_all_files(tmp_path: Path) -> None:
    save(tmp_path, "model-1.safetensors", a=(2, 3))
    save(tmp_path, "model-2.safetensors", b=(4,), c=())
    (tmp_path / "config.json").write_text('{"vocab_size": 7}')
    assert read_model_facts(tmp_path) == ModelFacts(7, {"a": (2, 3), "b": (4,), "c": ()})


def test_a_model_of_several_parts_has_the_vocabulary_of_its_text(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", a=(1,))
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 9}}')
    assert read_model_facts(tmp_path).vocab == 9


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"vocab_size": null}', '{"text_config": 3}'])
def test_a_folder_without_a_vocabulary_is_no_model(tmp_path: Path, config: str) -> None:
    save(tmp_path, "model.safetensors", a=(1,))
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(EngineError, match=r"config\.json"):
        read_model_facts(tmp_path)


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ('{"max_position_embeddings": 64}', 64),
        ('{"text_config": {"max_position_embeddings": 32}}', 32),
        ('{"vocab_size": 7}', None),
    ],
)
def test_a_models_context_is_what_its_configuration_says(tmp_path: Path, config: str, context: int | None) -> None:
    (tmp_path / "config.json").write_text(config)
    assert read_context(tmp_path) == context


def test_a_folder_without_a_configuration_has_no_context_to_read(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json"):
        read_context(tmp_path)


def test_every_cut_of_a_file_is_seen(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", a=(2, 3), b=(1,))
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    assert read_shapes(tmp_path)
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(EngineError, match="cannot be read"):
            read_shapes(tmp_path)
    file.write_bytes(whole + b"x")
    with pytest.raises(EngineError, match="torn"):
        read_shapes(tmp_path)


@pytest.mark.parametrize("header", [b"[]", b'{"a": 3}', b'{"a": {"shape": [1]}}', b"\xff\xfe"])
def test_a_header_that_is_none_is_an_engine_error(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(EngineError, match="cannot be read"):
        read_shapes(tmp_path)


def test_weights_of_another_model_are_named(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", a=(2, 3))
    facts = ModelFacts(7, {"a": (2, 3)})
    facts.require_same(tmp_path)
    for other, word in (({"a": (3, 2)}, "a is"), ({"a": (2, 3), "z": (1,)}, "z is absent"), ({}, "not known")):
        with pytest.raises(EngineError, match=word):
            ModelFacts(7, other).require_same(tmp_path)


def test_facts_without_shapes_take_any_weights(tmp_path: Path) -> None:
    ModelFacts(7).require_same(tmp_path / "absent")


def test_a_header_is_read_and_not_the_weights(tmp_path: Path) -> None:
    """A sparse file of a tebibyte: whoever reads more than its header does not come back."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    file = tmp_path / "model.safetensors"
    with file.open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        out.truncate(8 + len(header) + (1 << 40))
    assert read_shapes(tmp_path) == {"a": (1 << 38,)}
