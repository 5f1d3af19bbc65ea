"""The pointer file in the run's store, by which every node finds the coordinator; signed as domain/pointer.py says."""

import os
from pathlib import Path

from pydantic import ValidationError

from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import Pointer
from hexcloud.domain.pointer import verify_pointer

POINTER_FILE = "coordinator.json"


def write_pointer(run_dir: Path, pointer: Pointer) -> None:
    """Replace the run's pointer file in one step, so that no reader sees half of it."""
    target = run_dir / POINTER_FILE
    draft = target.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(pointer.model_dump_json())
    draft.replace(target)


def read_pointer(run_dir: Path, secret: str) -> Pointer:
    """Return the run's pointer. Raises EngineError when there is none yet or its signature is wrong."""
    path = run_dir / POINTER_FILE
    try:
        pointer = Pointer.model_validate_json(path.read_text())
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise EngineError(f"{path}: no coordinator to be found there (yet): {type(error).__name__}") from error
    if not verify_pointer(pointer, secret):
        raise EngineError(f"{path}: the signature is not of this run's secret")
    return pointer
