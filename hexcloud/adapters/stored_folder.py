"""Folders in the run's store: up with the marker last, down with every digest checked before anybody sees a file."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexcloud.domain.errors import StoreError
from hexcloud.domain.stored import MARKER, DamagedError, FolderMarker, parse_marker, sign_marker
from hexcloud.ports import Objects


def upload_folder(objects: Objects, name: str, folder: Path, secret: str) -> None:
    """Store a folder that nobody changes meanwhile. Raises StoreError; what is up then has no marker."""
    objects.delete((name + MARKER,))
    files: dict[str, str] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder).as_posix()
        files[inside] = _sha256(path)
        objects.upload(f"{name}/{inside}", str(path))
    objects.put(name + MARKER, sign_marker(name, files, secret).model_dump_json().encode())


def find_marker(objects: Objects, name: str, secret: str) -> FolderMarker | None:
    """Return the marker of a stored folder, None while it is not whole. Raises StoreError."""
    text = objects.get(name + MARKER)
    return None if text is None else parse_marker(text, name, secret)


def download_folder(objects: Objects, name: str, target: Path, secret: str) -> None:
    """Bring a stored folder under the target's name, which must be free, whole and verified or not at all.

    Raises StoreError when the store is away, DamagedError when a file is not what the marker says.
    """
    marker = find_marker(objects, name, secret)
    if marker is None:
        raise DamagedError(f"{name} in the run's store has no marker: it is not whole")
    with _draft(target) as draft:
        _fill(objects, name, marker, draft)
        draft.rename(target)


def download_files(objects: Objects, name: str, target: Path, secret: str) -> bool:
    """Bring the files of a stored folder into one that may hold others; False while the stored one is not whole.

    All are verified before the first gets its name, and the largest comes last. Raises StoreError.
    """
    marker = find_marker(objects, name, secret)
    if marker is None:
        return False
    target.mkdir(parents=True, exist_ok=True)
    with _draft(target / "stored") as draft:
        _fill(objects, name, marker, draft)
        for inside in sorted(marker.files, key=lambda inside: (draft / inside).stat().st_size):
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            (draft / inside).replace(target / inside)
    return True


def _fill(objects: Objects, name: str, marker: FolderMarker, draft: Path) -> None:
    for inside, digest in marker.files.items():
        path = draft / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        objects.download(f"{name}/{inside}", str(path))
        if _sha256(path) != digest:
            raise DamagedError(f"{name}/{inside} in the run's store is not what its marker says")


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
