"""Checkpoints of the trainer: DCP shards of its whole state, counters, and a manifest that is checked first.

DCP (torch.distributed.checkpoint) stores what loads into any number of ranks. A folder appears whole or not at all,
on rank 0's machine: ranks of other machines send their shards there and are sent what they load (checkpoint_files.py).
A shard is hashed once, by the rank that writes it, while it does; all is hashed again before anything is loaded.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hexcloud.domain.errors import EngineError
from hexcloud.domain.frozen import Frozen
from hexcloud.runtime.atomic import atomic_directory
from hexcloud.runtime.checkpoint_files import brought, first_of_machine, gathered
from hexcloud.runtime.checkpoint_index import (
    COUNTERS,
    CheckpointInfo,
    checkpoint_path,
    is_whole,
    prune_checkpoints,
    set_aside_torn,
    write_manifest,
)
from hexcloud.runtime.checkpoint_shards import ShardReader, ShardWriter
from hexcloud.runtime.trainer_patience import nothing, together
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_state import TrainingState

_SHARDS = "shards"
_CONFIG = "config.json"


class Counters(Frozen):
    """Where a training run stands: the data cursor too, as what comes next follows from epoch and version."""

    epoch: int
    version: int
    """Weights of this version; the next batch makes version + 1."""
    trained_samples: int
    cursor: int = 0
    """Prompts drawn when its last batch was taken."""
    accuracy_before: float | None
    """Of the policy before its first RL step, so that a resumed run can still report it; None: not measured."""


def save_checkpoint(run_dir: Path, counters: Counters, state: TrainingState, ranks: Ranks) -> CheckpointInfo:
    """Write the checkpoint of this version, then drop those that are no longer needed. All ranks call it.

    Raises FileExistsError on rank 0 when a whole one has the name already; a torn one is moved aside.
    """
    path = checkpoint_path(run_dir, counters.epoch, counters.version)
    is_first = ranks.rank == 0
    together(ranks, partial(set_aside_torn, path) if is_first else nothing)
    if is_first:
        with atomic_directory(path) as draft:
            digests = _save(draft / _SHARDS, state, ranks)
            (draft / COUNTERS).write_text(counters.model_dump_json())
            (draft / _CONFIG).write_text(json.dumps(state.form.config))
            write_manifest(draft, {f"{_SHARDS}/{name}": digest for name, digest in digests.items()})
    else:
        _save(Path(), state, ranks)
    together(ranks, partial(prune_checkpoints, run_dir) if is_first else nothing)
    return CheckpointInfo(epoch=counters.epoch, version=counters.version, path=path)


def load_checkpoint(info: CheckpointInfo, state: TrainingState, ranks: Ranks) -> Counters:
    """Load into a state of the same model, in place, and torch's random state with it. All ranks call it.

    Raises EngineError when the folder is not what its manifest says; nothing of it is unpickled then.
    """
    with brought(info.path, ranks) as folder:
        _require_whole(folder, ranks)
        stored = _stored(state)
        with _single_process():  # fills what it is given
            load(stored, storage_reader=ShardReader(folder / _SHARDS, ranks), no_dist=ranks.size == 1)
        counters = Counters.model_validate_json((folder / COUNTERS).read_text())
    state.updates = int(stored["updates"])
    torch.set_rng_state(stored["rng"])
    return counters


def config_at(info: CheckpointInfo) -> dict[str, object]:
    """Return the configuration of the model in a whole checkpoint."""
    config: dict[str, object] = json.loads((info.path / _CONFIG).read_text())
    return config


def _require_whole(folder: Path, ranks: Ranks) -> None:
    """Raise EngineError on all ranks unless every machine has it whole. The first rank of each hashes it."""
    is_checker = ranks.rank == first_of_machine(ranks.rank, ranks)
    is_torn = together(ranks, lambda: is_checker and not is_whole(folder))
    if float(ranks.sum(torch.tensor([float(is_torn)]))):
        raise EngineError(f"checkpoint {folder} is torn")


def _save(folder: Path, state: TrainingState, ranks: Ranks) -> dict[str, str]:
    """Write all shards into rank 0's folder; return their digests there, as those who wrote them tell."""
    with gathered(folder, ranks) as gathering, _single_process():
        writer = ShardWriter(gathering.folder, ranks)
        save(_stored(state), storage_writer=writer, no_dist=ranks.size == 1)
        gathering.digests = writer.digests
    return gathering.digests


def _stored(state: TrainingState) -> dict[str, torch.Tensor]:
    return {**state.tensors(), "updates": torch.tensor(state.updates), "rng": torch.get_rng_state()}


@contextmanager
def _single_process() -> Iterator[None]:
    """DCP warns that it works alone even when it was told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield
