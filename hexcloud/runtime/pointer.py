"""The pointer, by which every node finds the coordinator, in the run's folder or in its object store.

Signed as domain/pointer.py says, so that who can write there still cannot lead a node astray.
"""

import os
from pathlib import Path

from hexcloud.domain.errors import EngineError, StoreError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import POINTER_FILE, Pointer
from hexcloud.domain.pointer import parse_pointer
from hexcloud.ports import Objects


def write_pointer(run_dir: Path, pointer: Pointer) -> None:
    """Replace the run's pointer file in one step, so that no reader sees half of it."""
    target = run_dir / POINTER_FILE
    draft = target.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(pointer.model_dump_json())
    draft.replace(target)


def read_pointer(run_dir: Path, run_id: RunId, secret: str) -> Pointer:
    """Return the run's pointer. Raises EngineError when there is none yet or it was not signed for this run."""
    path = run_dir / POINTER_FILE
    try:
        return parse_pointer(path.read_bytes(), run_id, secret)
    except OSError as error:
        raise EngineError(f"{path}: no pointer to the coordinator (yet): {error}") from error
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error


def fetch_pointer(objects: Objects, run_id: RunId, secret: str) -> Pointer:
    """Return the run's pointer from its store. Raises EngineError as `read_pointer`, also when the store is away."""
    try:
        content = objects.get(POINTER_FILE)
    except StoreError as error:
        raise EngineError(f"no pointer to the coordinator: {error}") from error
    if content is None:
        raise EngineError("no pointer to the coordinator in the run's store (yet)")
    return parse_pointer(content, run_id, secret)
