"""Where a trainer begins: at a checkpoint, or with a model of its own on rank 0 that all ranks then share."""

import torch
from transformers import PreTrainedModel

from hexcloud.domain.command import NodeSpec
from hexcloud.runtime.checkpoint import config_at
from hexcloud.runtime.checkpoint_index import CheckpointInfo
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.tasks import CharacterTask
from hexcloud.runtime.trainer_crew import Beginning
from hexcloud.runtime.trainer_model import build_model, config_of, read_model
from hexcloud.runtime.trainer_policy import require_exact
from hexcloud.runtime.trainer_resize import whole_of
from hexcloud.runtime.trainer_shape import require_alike
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start


def beginning(spec: NodeSpec, checkpoint: CheckpointInfo | None) -> Beginning:
    """Return with what a crew begins: a checkpoint's state, or a new policy's.

    Raises EngineError for a policy that does not learn its first steps, or a model that is not trained here.
    """
    if checkpoint is not None:
        return Beginning(config_at(checkpoint), checkpoint)
    task = open_task(spec.task, spec.weights)
    model = build_model(task, spec.seed, spec.weights or "")
    require_exact(model)
    if isinstance(task, CharacterTask):
        warm_start(model, task, spec.seed, WarmupSettings())
    whole: dict[str, torch.Tensor] = dict(whole_of(model))
    if spec.training.kl_weight:
        whole |= whole_of(_reference(spec.training.reference, model), "reference.")
    return Beginning(config_of(model), whole)


def _reference(folder: str | None, policy: PreTrainedModel) -> PreTrainedModel:
    """Return the reference of a folder, without one the policy itself. Raises EngineError for one of another shape."""
    if folder is None:
        return policy
    reference = read_model(folder)
    require_alike(reference, policy)
    return reference
