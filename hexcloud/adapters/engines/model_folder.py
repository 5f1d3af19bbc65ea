"""A Hugging Face folder as an engine sees it: its vocabulary, and the names and shapes of its tensors.

Only headers are read, by the safetensors format itself (0.8): a little-endian u64, then that many bytes of JSON that
maps a tensor's name to its dtype, shape and place among the bytes that follow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexcloud.domain.errors import EngineError

_MAX_HEADER = 100_000_000
"""The format's own limit, bytes."""
_PREFIX = 8

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ModelFacts:
    """What a client must know of the model that its engine serves."""

    vocab: int
    shapes: Shapes | None = None
    """Of all tensors, by name; None: any weights are taken for the model's."""

    def require_same(self, folder: Path) -> None:
        """Raise EngineError unless a folder holds whole weights of this model.

        SGLang (0.5.23) does not survive others: when a load fails midway it reads the old weights again, from the
        path of the new ones.
        """
        if self.shapes is None:
            return
        found = read_shapes(folder)
        if found != self.shapes:
            odd = sorted(name for name in {*found, *self.shapes} if found.get(name) != self.shapes.get(name))
            first = f"{odd[0]} is {found.get(odd[0], 'absent')}, not {self.shapes.get(odd[0], 'known')}"
            raise EngineError(f"{folder} holds weights of another model: {first}; {len(odd)} tensors differ")


def read_model_facts(folder: Path) -> ModelFacts:
    """Read the facts of a folder with `config.json` and safetensors. Raises EngineError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
        vocab = config["vocab_size"] if "vocab_size" in config else config["text_config"]["vocab_size"]
        return ModelFacts(int(vocab), read_shapes(folder))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path} does not describe a model: {error!r}") from error


def read_context(folder: Path) -> int | None:
    """Return the most tokens of a sequence of a folder's model; None where its configuration does not say.

    Raises EngineError when there is none to read.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
        found = config.get("max_position_embeddings", config.get("text_config", {}).get("max_position_embeddings"))
        return None if found is None else int(found)
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise EngineError(f"{path} does not describe a model: {error!r}") from error


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in a folder's safetensors. Raises EngineError for none, torn or odd files."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(f"the weights in {folder} cannot be read: there is no *.safetensors")
    try:
        headers = [_header(file) for file in files]
        return {name: tuple(entry["shape"]) for header in headers for name, entry in header.items()}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"the weights in {folder} cannot be read: {error}") from error


def _header(file: Path) -> dict[str, Any]:
    """Return what a file says of its tensors. Raises ValueError for a file that is not as long as it says."""
    with file.open("rb") as content:
        length = int.from_bytes(content.read(_PREFIX), "little")
        if not 0 < length <= _MAX_HEADER:
            raise ValueError(f"{file.name} is no safetensors file")
        header: dict[str, Any] = json.loads(content.read(length))
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if (size := file.stat().st_size) != _PREFIX + length + end:
        raise ValueError(f"{file.name} is torn: {size} bytes of {_PREFIX + length + end}")
    return header
