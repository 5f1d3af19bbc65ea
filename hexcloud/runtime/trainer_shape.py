"""What can be said of models before their weights are read: is a folder one, and is another like it?"""

import json
from pathlib import Path

from transformers import PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_policy import blank


def shape_of(folder: Path) -> PreTrainedModel:
    """Return the model of a Hugging Face folder, whose weights are looked for, and not read. Raises EngineError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
        model = blank(config)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}; name a Hugging Face folder") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{path} is no configuration of a causal language model: {error!r}") from error
    if not any(folder.glob("*.safetensors")):
        raise EngineError(f"{folder} has no weights: no *.safetensors")
    return model


def trained_shape(task: TaskSpec, weights: str | None) -> PreTrainedModel:
    """Return the model that a run trains, for its configuration and shapes only. Raises EngineError, ConfigError."""
    return shape_of(Path(weights)) if weights else build_model(open_task(task, None), seed=0)


def require_alike(reference: PreTrainedModel, policy: PreTrainedModel) -> None:
    """Raise EngineError unless the reference has the policy's weights by name and shape: it is computed as the policy.

    Either may be without its weights.
    """
    its, own = reference.config, policy.config
    for field in ("vocab_size", "model_type", "num_hidden_layers", "hidden_size"):
        theirs, ours = getattr(its, field, None), getattr(own, field, None)
        if theirs != ours:
            raise EngineError(f"the reference has another {field} than the policy: {theirs}, and not {ours}")
    shapes = [{name: tuple(weight.shape) for name, weight in model.named_parameters()} for model in (reference, policy)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        theirs, ours = shapes[0].get(name), shapes[1].get(name)
        if theirs != ours:
            raise EngineError(f"the reference has another {name} than the policy: {theirs}, and not {ours}")
