"""The pointer file in the run's store, by which every node finds the coordinator; signed as domain/pointer.py says."""

import os
from pathlib import Path

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import POINTER_FILE, Pointer
from hexcloud.domain.pointer import parse_pointer


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
