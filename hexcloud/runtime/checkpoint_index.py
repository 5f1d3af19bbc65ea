"""Which checkpoints a run has. No torch here: the coordinator asks before the trainer exists.

A checkpoint is a folder `checkpoints/EPOCH-VERSION` whose `manifest.json`, written last, holds size and digest of every
other file in it. Digests are checked before anything is loaded (checkpoints are pickles); a folder that fails is as if
it were absent.
"""

import json
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from hexcloud.domain.frozen import Frozen
from hexcloud.runtime.atomic import sha256_of

_FOLDER = "checkpoints"
_MANIFEST = "manifest.json"
COUNTERS = "counters.json"
"""Name of the file that says where training stood."""
_RESERVED = ".first_epoch"
_NAME = re.compile(r"^(\d+)-(\d+)$")
_AT_ONCE = 8
"""Files that are hashed."""
KEPT = 2
"""The newest, and one to fall back on."""


class Manifest(Frozen):
    """What a checkpoint must consist of."""

    files: dict[str, str]
    """Path in its folder -> sha256."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """The same files -> bytes; manifests of earlier versions lack them."""


@dataclass(frozen=True)
class CheckpointInfo:
    """One whole checkpoint. A run that resumes from it goes on with epoch + 1 at this version."""

    epoch: int
    version: int
    path: Path


def checkpoint_path(run_dir: Path, epoch: int, version: int) -> Path:
    """Return where the checkpoint of these weights belongs."""
    return run_dir / _FOLDER / f"{epoch}-{version}"


def write_manifest(directory: Path, known: Mapping[str, str] | None = None) -> None:
    """Seal a folder: note size and digest of every file in it. Digests that are `known` are taken as they are."""
    known = known or {}
    files = {name: known.get(name) or sha256_of(path) for name, path in _files(directory).items()}
    (directory / _MANIFEST).write_text(Manifest(files=files, sizes=_sizes(directory)).model_dump_json(indent=2))


def is_sealed(directory: Path) -> bool:
    """Has the folder its manifest, and the files of that in their sizes? Nothing is hashed: never enough to load it."""
    try:
        expected = _manifest(directory).sizes
        return _sizes(directory) == expected if expected else is_whole(directory)
    except (OSError, ValidationError, UnicodeDecodeError):
        return False


def is_whole(directory: Path) -> bool:
    """Does the folder hold exactly what its manifest says?"""
    try:
        manifest = _manifest(directory)
        files = _files(directory)
        with ThreadPoolExecutor(
            _AT_ONCE
        ) as threads:  # hashing holds no lock, and a large run has a shard for each rank
            found = dict(zip(files, threads.map(sha256_of, files.values()), strict=True))
    except (OSError, ValidationError, UnicodeDecodeError):
        return False
    return found == manifest.files


def newest_checkpoint(run_dir: Path, after: tuple[int, int] = (-1, -1)) -> CheckpointInfo | None:
    """Return the newest whole checkpoint; torn ones are passed over. A later epoch beats a higher version.

    `after`: epoch and version of one that is known; only newer ones are looked at, and hashed.
    """
    newer = (info for info in _all(run_dir) if (info.epoch, info.version) > after)
    return next((info for info in newer if is_whole(info.path)), None)


def drawn_prompts(info: CheckpointInfo) -> int:
    """Return how many prompts had been drawn when a whole checkpoint's last batch was taken; 0 if it does not say."""
    path = info.path / COUNTERS
    return int(json.loads(path.read_text()).get("cursor", 0)) if path.exists() else 0


def next_epoch(run_dir: Path) -> int:
    """Return the first epoch that no checkpoint has, torn ones included, and no earlier machine had."""
    return max(_reserved(run_dir), 1 + max((info.epoch for info in _all(run_dir)), default=-1))


def reserve_epochs(run_dir: Path, first: int) -> None:
    """Leave all epochs below `first` to the machines that had the run before."""
    (run_dir / _FOLDER).mkdir(parents=True, exist_ok=True)
    (run_dir / _FOLDER / _RESERVED).write_text(str(first))


def _reserved(run_dir: Path) -> int:
    try:
        return int((run_dir / _FOLDER / _RESERVED).read_text())
    except FileNotFoundError:
        return 0


def set_aside_torn(directory: Path) -> None:
    """Free the name of a torn checkpoint, if one has it; its remains stay beside it under a name with a leading dot."""
    if not directory.exists() or is_whole(directory):
        return
    aside = directory.with_name(f".torn-{directory.name}")
    shutil.rmtree(aside, ignore_errors=True)
    directory.rename(aside)


def prune_checkpoints(run_dir: Path) -> None:
    """Remove all but the newest whole ones, as far as manifest and sizes tell, and torn ones older than those."""
    whole = [info for info in _all(run_dir) if is_sealed(info.path)]
    if len(whole) < KEPT:
        return
    oldest = whole[KEPT - 1]
    for info in _all(run_dir):
        if (info.epoch, info.version) < (oldest.epoch, oldest.version):
            shutil.rmtree(info.path)


def _manifest(directory: Path) -> Manifest:
    return Manifest.model_validate_json((directory / _MANIFEST).read_text())


def _files(directory: Path) -> dict[str, Path]:
    """Return every file but the manifest, by path in the folder."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file() and path != directory / _MANIFEST)
    return {path.relative_to(directory).as_posix(): path for path in paths}


def _sizes(directory: Path) -> dict[str, int]:
    return {name: path.stat().st_size for name, path in _files(directory).items()}


def _all(run_dir: Path) -> list[CheckpointInfo]:
    """Return every folder that is named like a checkpoint, newest first."""
    folder = run_dir / _FOLDER
    paths = folder.iterdir() if folder.is_dir() else ()
    named = [(match, path) for path in paths if (match := _NAME.match(path.name))]
    found = [CheckpointInfo(int(match[1]), int(match[2]), path) for match, path in named]
    return sorted(found, key=lambda info: (info.epoch, info.version), reverse=True)
