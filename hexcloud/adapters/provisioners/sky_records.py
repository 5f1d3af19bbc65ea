"""SkyRecords: what was asked of SkyPilot for a run, on disk before it is asked, so that a restart asks nothing twice.

A convenience, not the truth: what bills is what the cloud lists, and machines are found by their tags without this.
"""

import os
from pathlib import Path
from threading import RLock

from hexcloud.adapters.provisioners.node_dir import write_whole
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen

PROVISION, SETUP = "provision", "setup"
"""Phases of a launch: until SkyPilot has the machines; until the node's program runs."""


class Refusal(Frozen):
    """A typed error that waits until everything half-made is released."""

    kind: str
    message: str
    code: str


class SkyRecord(Frozen):
    """One SkyPilot cluster. Holds no secret."""

    cluster: str
    node_ids: tuple[NodeId, ...]
    """In rank order."""
    offer_id: str
    cloud: str
    region: str
    phase: str = PROVISION
    request: str = ""
    """SkyPilot's id of the launch; empty before it is known."""
    spent: tuple[str, ...] = ()
    """Launches of this cluster that were refused and said so."""
    job: int | None = None
    is_started: bool = False
    """The program runs: the launch is through."""
    refusal: Refusal | None = None
    is_ending: bool = False
    """Somebody asked for its end: nothing is launched here any more."""
    is_ended: bool = False
    """The cloud confirmed it."""
    down: str = ""
    """SkyPilot's id of the request for the end."""
    down_wall_s: float = 0.0
    """When it was asked, seconds since the epoch."""


class SkyRecords:
    """The records of one run, one file each. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = RLock()

    def all(self) -> tuple[SkyRecord, ...]:
        """Return them all."""
        with self._lock:
            names = sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []
            found = (self.read(name) for name in names)
            return tuple(record for record in found if record is not None)

    def read(self, cluster: str) -> SkyRecord | None:
        """Return one, or None: one that is broken is as good as lost, since SkyPilot finds the launch by its name."""
        try:
            with self._lock:
                return SkyRecord.model_validate_json(self._path(cluster).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def of(self, node_id: NodeId) -> SkyRecord | None:
        """Return the record of a node's cluster, or None."""
        return next((record for record in self.all() if node_id in record.node_ids), None)

    def save(self, record: SkyRecord) -> SkyRecord:
        """Write one, whole and on the disk, and return it. Raises OSError."""
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._path(record.cluster)
            write_whole(path, record.model_dump_json())
            _sync(path)
            _sync(self._folder)
            return record

    def change(self, cluster: str, **changes: object) -> SkyRecord:
        """Change fields of a record as it is now, and return it. Raises KeyError when there is none."""
        with self._lock:
            record = self.read(cluster)
            if record is None:
                raise KeyError(cluster)
            return self.save(record.model_copy(update=changes))

    def _path(self, cluster: str) -> Path:
        return self._folder / f"{cluster}.json"


def _sync(path: Path) -> None:
    """A power cut ends no rented machine, so its record must survive one."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
