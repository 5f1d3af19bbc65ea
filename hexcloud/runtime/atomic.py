"""Whole files and folders: what a reader finds under a name is complete, also after a crash. Plus their digests."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Give a draft folder to fill; it gets the target's name only if the block succeeds. Nothing is ever replaced.

    The draft lies beside the target under a name with a leading dot, and is on disk before it is renamed. Raises
    FileExistsError, at once, when the target exists.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        for path in (*draft.rglob("*"), draft):
            _flush(path)
        draft.rename(target)
        _flush(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
