"""Weights on disk: Hugging Face folders (`config.json`, `model.safetensors`), written whole and checked before use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.atomic import atomic_directory, sha256_of

_FILE = "model.safetensors"
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class WeightsFile:
    """One safetensors file and its identity."""

    path: Path
    sha256: str
    size: int
    """Bytes."""


def write_weights(
    directory: Path,
    state: Mapping[str, torch.Tensor],
    config: Mapping[str, object],
    extra: Mapping[str, str] | None = None,
) -> WeightsFile:
    """Write a state dict as a folder that transformers loads; `extra` adds text files (name -> content).

    A tied head is left out: it is the embedding, and safetensors refuses tensors that share memory.
    """
    tied = bool(config.get("tie_word_embeddings"))
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in state.items() if not (tied and name == _HEAD)
    }
    described = json.dumps(dict(config), indent=2)
    with atomic_directory(directory) as draft:
        # transformers asks for the format. With the configuration inside, the file alone can be served elsewhere.
        save_file(tensors, draft / _FILE, metadata={"format": "pt", "config": described})
        for name, text in {"config.json": described, **(extra or {})}.items():
            (draft / name).write_text(text)
        file = draft / _FILE
        return WeightsFile(path=directory / _FILE, sha256=sha256_of(file), size=file.stat().st_size)


def read_weights(path: Path, sha256: str) -> dict[str, torch.Tensor]:
    """Read a safetensors file after checking its digest. Raises EngineError when it is missing or another one."""
    try:
        found = sha256_of(path)
    except OSError as error:
        raise EngineError(f"weights {path} cannot be read: {error}") from error
    if found != sha256:
        raise EngineError(f"weights {path} are torn or not the ones meant: sha256 {found[:12]}, not {sha256[:12]}")
    return load_file(path)
