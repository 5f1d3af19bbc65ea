"""NodeDir: a local node's own directory, and the small files that remember what was asked of it.

Order of life: files, then the intent, then a process that claims the record (see `launch`), then the mark of stopping.
Each is written whole or not at all, so a controller killed between two of them finds out where it was.
"""

import json
import os
from pathlib import Path

from hexcloud.adapters.provisioners.launch import CLOSED, RECORD, claim
from hexcloud.domain.errors import UnknownProvisionError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId


class Intent(Frozen):
    """A node that was asked for. Holds no secret."""

    node_id: NodeId
    run_id: RunId
    offer_id: OfferId
    asked_wall_s: float
    """Seconds since the epoch."""


class NodeDir:
    """`{run_dir}/nodes/{node_id}`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        """Where the node's output goes."""
        return self.path / "node.log"

    def prepare(self, intent: Intent, files: dict[str, str]) -> None:
        """Write what the node finds when it starts, and last the intent."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, content in files.items():
            if Path(name).name != name:
                raise UnknownProvisionError(f"{name!r} is not a plain file name", intent.offer_id)
            write_whole(self.path / name, content)
        write_whole(self._intent, intent.model_dump_json())

    def intent(self) -> Intent | None:
        """Return what was asked, or None when nothing was."""
        text = _read(self._intent)
        return None if text is None else Intent.model_validate_json(text)

    def has_record(self) -> bool:
        """Did a process become this node, or was it closed before one could?"""
        return (self.path / RECORD).exists()

    def pid(self) -> int | None:
        """Return the pid, session and process group that the node began with; None before that or when closed."""
        text = _read(self.path / RECORD)
        return None if text is None else json.loads(text)["pid"] or None

    def claimed_wall_s(self) -> float:
        """Return when the record was written, seconds since the epoch. Raises FileNotFoundError before that."""
        return (self.path / RECORD).stat().st_mtime

    def close(self) -> bool:
        """Forbid that a process becomes this node. Return False when one has already."""
        return claim(str(self.path), CLOSED)

    def mark_stopping(self, wall_s: float) -> None:
        """Remember when the node was first told to end."""
        write_whole(self._stopping, str(wall_s))

    def stopping_since_wall_s(self) -> float | None:
        """Return when the node was first told to end, or None."""
        text = _read(self._stopping)
        return None if text is None else float(text)

    @property
    def _intent(self) -> Path:
        return self.path / "intent.json"

    @property
    def _stopping(self) -> Path:
        return self.path / "stopping"


def write_whole(path: Path, content: str) -> None:
    """Replace a file in one step, so that no reader and no killed writer leaves half of it.

    Not synced to disk: a power cut ends the processes that these files are about.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
