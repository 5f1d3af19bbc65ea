"""restore: what a new head brings onto its machine before it begins, so that the run goes on where it stood."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from hexcloud.adapters.stored_folder import download_folder
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.stored import (
    CHECKPOINTS,
    HEADS,
    DamagedError,
    checkpoint_of,
    epochs_of,
    head_object,
    whole_checkpoints,
)
from hexcloud.node.trainer_process import MAX_RESTARTS
from hexcloud.ports import Objects
from hexcloud.runtime.checkpoint_index import checkpoint_path, next_epoch, reserve_epochs, set_aside_torn

log = structlog.get_logger()


@dataclass(frozen=True)
class Claim:
    """A head's right to the run: an epoch that no head had before, and where it goes on."""

    epoch: int
    version: int
    """Of the checkpoint that was brought; -1 when the run begins."""


def restore(objects: Objects, run_dir: Path, secret: str, node_id: NodeId) -> Claim:
    """Claim the run's next epochs in the store, and bring its newest whole checkpoint here.

    A checkpoint that is torn, damaged or not signed by this run is passed over: the one before it serves. Raises
    StoreError when the store is away.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / METRICS_FILE).unlink(missing_ok=True)  # of a head that ended on this machine, and stored under its claim
    names = objects.list(CHECKPOINTS)
    taken = [found.epoch for found in map(checkpoint_of, names) if found]
    # Each head may have restarted its trainer, in an epoch of its own, and died before it stored anything.
    taken += [epoch + MAX_RESTARTS for epoch in epochs_of(objects.list(HEADS))]
    version = _bring_newest(objects, names, run_dir, secret)
    epoch = max([next_epoch(run_dir), *(epoch + 1 for epoch in taken)])
    while not objects.create(head_object(epoch), node_id.encode()):  # another head claimed it since we looked
        epoch += MAX_RESTARTS + 1
    reserve_epochs(run_dir, epoch)
    log.info("restored", epoch=epoch, version=version)
    return Claim(epoch, version)


def _bring_newest(objects: Objects, names: tuple[str, ...], run_dir: Path, secret: str) -> int:
    for found in whole_checkpoints(names):
        target = checkpoint_path(run_dir, found.epoch, found.version)
        set_aside_torn(target)
        try:
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                download_folder(objects, found.folder, target, secret)
            return found.version
        except DamagedError as error:
            log.error("checkpoint_passed_over", checkpoint=found.folder, reason=str(error))
    return -1
