"""Checkpoints of the trainer: DCP shards of model and optimizer, counters, and a manifest that is checked first.

DCP (torch.distributed.checkpoint) stores what loads into any number of ranks. A folder appears whole or not at all.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hexcloud.domain.errors import EngineError
from hexcloud.domain.frozen import Frozen
from hexcloud.runtime.atomic import atomic_directory
from hexcloud.runtime.checkpoint_index import (
    COUNTERS,
    CheckpointInfo,
    checkpoint_path,
    is_whole,
    prune_checkpoints,
    set_aside_torn,
    write_manifest,
)

_SHARDS = "shards"


class Counters(Frozen):
    """Where a training run stands."""

    epoch: int
    version: int
    """Weights of this version; the next batch makes version + 1."""
    trained_samples: int
    cursor: int = 0
    """Prompts drawn when its last batch was taken."""
    accuracy_before: float | None
    """Of the policy before its first RL step, so that a resumed run can still report it; None: not measured."""


def save_checkpoint(
    run_dir: Path, counters: Counters, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> CheckpointInfo:
    """Write the checkpoint of this version, then drop those that are no longer needed.

    Raises FileExistsError when a whole one has the name already; a torn one is moved aside.
    """
    path = checkpoint_path(run_dir, counters.epoch, counters.version)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "rng": torch.get_rng_state()}
    set_aside_torn(path)
    with atomic_directory(path) as draft:
        with _single_process():
            save(state, checkpoint_id=draft / _SHARDS, no_dist=True)
        (draft / COUNTERS).write_text(counters.model_dump_json())
        write_manifest(draft)
    prune_checkpoints(run_dir)
    return CheckpointInfo(epoch=counters.epoch, version=counters.version, path=path)


def load_checkpoint(info: CheckpointInfo, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Counters:
    """Load into a model and optimizer of the same kind, in place, and torch's random state with them.

    Raises EngineError when the folder is not what its manifest says; nothing of it is unpickled then.
    """
    if not is_whole(info.path):
        raise EngineError(f"checkpoint {info.path} is torn")
    weights, moments = get_state_dict(model, optimizer)
    random_state = torch.get_rng_state()
    with _single_process():  # fills what it is given
        load(
            {"model": weights, "optimizer": moments, "rng": random_state},
            checkpoint_id=info.path / _SHARDS,
            no_dist=True,
        )
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    torch.set_rng_state(random_state)
    return Counters.model_validate_json((info.path / COUNTERS).read_text())


@contextmanager
def _single_process() -> Iterator[None]:
    """DCP warns that it works alone even when it was told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield
