"""Mirror: what a head puts into the run's store, and in which order.

The order is what makes it safe: files of a folder before its marker, a new checkpoint before old ones go, everything
before the run counts as done. A head that lost the run to another one puts nothing there any more.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from hexcloud.adapters.stored_folder import upload_folder
from hexcloud.domain.errors import HexcloudError
from hexcloud.domain.messages import POINTER_FILE, Pointer
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.stored import (
    CHECKPOINTS,
    HEADS,
    MARKER,
    OUTPUT,
    CheckpointName,
    checkpoint_of,
    epochs_of,
    metrics_object,
    whole_checkpoints,
)
from hexcloud.node.restore import Claim
from hexcloud.ports import Objects
from hexcloud.runtime.checkpoint_index import KEPT, CheckpointInfo, newest_checkpoint

METRICS_S = 5.0
"""The file of metrics is stored whole: not more often than this, and less often as it grows."""
METRICS_GROWN = 1024 * 1024
"""Bytes of metrics, some thousand steps, that add as much to the pause."""

log = structlog.get_logger()


class SupersededError(HexcloudError):
    """Another head has claimed the run."""


@dataclass(frozen=True)
class Belongings:
    """What a head has to keep."""

    run_dir: Path
    output: Path
    secret: str
    """The heads': markers are signed with it."""
    claim: Claim


class Mirror:
    """One head's; used by one thread. `bring_up` does what is to do and may be repeated whenever it fails."""

    def __init__(self, objects: Objects, has: Belongings, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects = objects
        self._has = has
        self._clock = clock
        self._pointer: Pointer | None = None
        self._metrics_size = 0
        self._metrics_due_s = 0.0
        self._checkpoint = CheckpointName(has.claim.epoch - 1, has.claim.version)
        self.is_over = False
        """Has the trainer written the result? Then it is to be stored, too."""
        self.is_delivered = False
        """Is everything in the store that the run leaves?"""

    @property
    def stored_version(self) -> int:
        """The newest version from which another head could go on; -1 for none."""
        return self._checkpoint.version

    def point(self, pointer: Pointer) -> None:
        """Store this pointer at the next turn."""
        self._pointer = pointer

    def bring_up(self, at_once: bool) -> None:
        """Store what is new; metrics only now and then unless `at_once`.

        Raises StoreError or OSError when it is to be tried again, SupersededError when never again.
        """
        if (pointer := self._pointer) is not None:
            self._require_claim()
            self._objects.put(POINTER_FILE, pointer.model_dump_json().encode())
            self._pointer = None if self._pointer is pointer else self._pointer
        found = self._new_checkpoint()
        # A step that the checkpoint holds has its row in the store before: what a run goes on from is told whole.
        if found or at_once or self.is_over or self._clock() >= self._metrics_due_s:
            self._store_metrics()
        if found:
            self._store_checkpoint(found)
        if self.is_over and not self.is_delivered:
            self._require_claim()
            if self._has.output.is_dir():
                upload_folder(self._objects, OUTPUT, self._has.output, self._has.secret)
            self.is_delivered = True

    def _require_claim(self) -> None:
        if max(epochs_of(self._objects.list(HEADS)), default=-1) > self._has.claim.epoch:
            raise SupersededError(f"another head has the run since epoch {self._has.claim.epoch}")

    def _new_checkpoint(self) -> CheckpointInfo | None:
        return newest_checkpoint(self._has.run_dir, after=(self._checkpoint.epoch, self._checkpoint.version))

    def _store_checkpoint(self, found: CheckpointInfo) -> None:
        name = CheckpointName(found.epoch, found.version)
        self._require_claim()
        # Links outlive the trainer's own pruning, which does not wait for a slow store.
        held = self._has.run_dir / ".storing"
        shutil.rmtree(held, ignore_errors=True)
        shutil.copytree(found.path, held, copy_function=os.link)
        upload_folder(self._objects, name.folder, held, self._has.secret)
        shutil.rmtree(held)
        self._checkpoint = name
        log.info("checkpoint_stored", checkpoint=name.folder)
        self._prune()

    def _prune(self) -> None:
        """Remove what is older than the newest whole ones, markers first: half a folder must not look whole."""
        names = self._objects.list(CHECKPOINTS)
        oldest = min(whole_checkpoints(names)[:KEPT])  # there is one: it was stored just now
        old = [name for name in names if (found := checkpoint_of(name)) and found < oldest]
        self._objects.delete(tuple(sorted(old, key=lambda name: (not name.endswith(MARKER), name))))

    def _store_metrics(self) -> None:
        """Store the rows so far; a last line without its end is still being written."""
        path = self._has.run_dir / METRICS_FILE
        self._metrics_due_s = self._clock() + METRICS_S * (1 + self._metrics_size / METRICS_GROWN)
        rows, end, _ = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")
        if end and len(rows) != self._metrics_size:
            self._objects.put(metrics_object(self._has.claim.epoch), rows + end)
            self._metrics_size = len(rows)
