"""Names in a run's store, and the signed marker of a folder there. Whoever finds a marker finds a whole folder.

Checkpoints are unpickled, so a marker carries a digest of every file and the run's signature: who can write into the
bucket, but is not of the run, can make nothing that a trainer would load.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import ValidationError

from hexcloud.domain.errors import StoreError
from hexcloud.domain.frozen import Frozen

CHECKPOINTS = "checkpoints"
HEADS = "heads"
METRICS = "metrics"
OUTPUT = "output"
MARKER = ".json"
_CHECKPOINT = re.compile(rf"{CHECKPOINTS}/(\d+)-(\d+)(\{MARKER}|/.+)")
_SEGMENT = re.compile(rf"(?:{HEADS}|{METRICS})/(\d+)")


class DamagedError(StoreError):
    """The store answers, and what it holds is not what its marker promises: do without it, a repetition won't help."""


class FolderMarker(Frozen):
    """What a stored folder consists of; written after everything in it."""

    files: dict[str, str]
    """Path in the folder -> sha256."""
    signature: str


class CheckpointName(NamedTuple):
    """A checkpoint in the store; newest last."""

    epoch: int
    version: int

    @property
    def folder(self) -> str:
        """Return the name of its folder."""
        return f"{CHECKPOINTS}/{self.epoch}-{self.version}"


def sign_marker(folder: str, files: Mapping[str, str], secret: str) -> FolderMarker:
    """Return the marker of a folder. `secret` is the run's."""
    return FolderMarker(files=dict(files), signature=_signature(folder, files, secret))


def parse_marker(text: bytes, folder: str, secret: str) -> FolderMarker:
    """Return a folder's marker. Raises DamagedError when it is none, is of another folder, or leads out of its own."""
    try:
        marker = FolderMarker.model_validate_json(text)
    except ValidationError as error:
        raise DamagedError(f"{folder}{MARKER} in the run's store is no marker") from error
    if not hmac.compare_digest(_signature(folder, marker.files, secret).encode(), marker.signature.encode()):
        raise DamagedError(f"{folder}{MARKER} in the run's store was not signed by this run")
    for name in marker.files:
        if not all(part not in ("", ".", "..") for part in name.split("/")) or "\\" in name:
            raise DamagedError(f"{folder}{MARKER} in the run's store names {name!r}")
    return marker


def whole_checkpoints(names: Iterable[str]) -> tuple[CheckpointName, ...]:
    """Return the checkpoints that have a marker, newest first."""
    found = (_CHECKPOINT.fullmatch(name) for name in names)
    whole = {CheckpointName(int(one[1]), int(one[2])) for one in found if one and one[3] == MARKER}
    return tuple(sorted(whole, reverse=True))


def checkpoint_of(name: str) -> CheckpointName | None:
    """Return the checkpoint to which an object belongs, whole or not."""
    found = _CHECKPOINT.fullmatch(name)
    return CheckpointName(int(found[1]), int(found[2])) if found else None


def head_object(epoch: int) -> str:
    """Return the object by which a head claims this epoch and the next ones."""
    return f"{HEADS}/{epoch:08d}"


def metrics_object(epoch: int) -> str:
    """Return the object that holds the steps which the head with this claim published."""
    return f"{METRICS}/{epoch:08d}"


def epochs_of(names: Iterable[str]) -> tuple[int, ...]:
    """Return the epochs of claims or of metrics."""
    return tuple(int(found[1]) for name in names if (found := _SEGMENT.fullmatch(name)))


def _signature(folder: str, files: Mapping[str, str], secret: str) -> str:
    signed = json.dumps([folder, sorted(files.items())])
    return hmac.new(secret.encode(), f"folder\n{signed}".encode(), hashlib.sha256).hexdigest()
