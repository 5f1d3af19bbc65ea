"""In which layouts a run's trainer may be planned: those it can really run with the model that is really trained."""

import json
from pathlib import Path

from hexcloud.domain.model import ModelSpec
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import LayoutKind

_CUT_BY_TP = frozenset({"llama", "qwen2"})
"""Families known to have nothing but plain projections in attention and MLP, which is what the trainer cuts."""


def layouts_of(spec: RunSpec, model: ModelSpec) -> tuple[LayoutKind, ...]:
    """Return the layout that the user named, else all that the trainer can run.

    Tensor parallelism depends on the model. A plan knows the one of the catalog, so what is trained has to be like it,
    unless a machine has one rank, which has nothing to cut.
    """
    if spec.training.layout is not None:
        return (spec.training.layout,)
    has_one_rank = spec.training.ranks == 1 or (spec.training.ranks is None and not spec.is_real)
    if has_one_rank or (spec.weights is not None and is_like(Path(spec.weights), model)):
        return tuple(LayoutKind)
    return tuple(kind for kind in LayoutKind if kind is not LayoutKind.TP)


def is_like(folder: Path, model: ModelSpec) -> bool:
    """Has the model of a Hugging Face folder what tensor parallelism divides, as the catalog says? No: not known."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict) or config.get("model_type") not in _CUT_BY_TP:
        return False
    heads = config.get("num_attention_heads")
    found = (heads, config.get("num_key_value_heads", heads), config.get("intermediate_size"))
    return found == (model.heads, model.kv_heads, model.intermediate)
