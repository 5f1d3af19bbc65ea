"""PublishedWeights: which versions and deltas the coordinator serves. The files stay the trainer's, and are checked.

A damaged file is not served: its readers would refuse it again and again. The trainer is asked to write it anew.
"""

from pathlib import Path
from threading import Lock

import structlog

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.messages import DeltaReport, WeightsManifest
from hexcloud.runtime.atomic import sha256_of
from hexcloud.runtime.coordinator_stores import StoredCopies

DELTAS_KEPT = 8
"""As the trainer keeps them."""

log = structlog.get_logger()


class PublishedWeights:
    """The newest `keep` versions of the current epoch; those of abandoned epochs are served no more."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._served: dict[tuple[int, int], tuple[WeightsManifest, Path]] = {}
        self._checked: dict[Path, tuple[str, int, int]] = {}
        """Intact files, by digest, size and time of their last change: each is read once, not once per node."""
        self._checking = Lock()
        """Many nodes ask at once, each in a thread: the first one's reads, the others wait for what it finds."""
        self._damaged: WeightsManifest | None = None
        self._deltas: dict[tuple[int, int, int], DeltaReport] = {}
        self.copies = StoredCopies({})
        """In stores of regions."""

    @property
    def latest(self) -> WeightsManifest | None:
        """The newest version, or None before the first publication."""
        return next(reversed(self._served.values()))[0] if self._served else None

    def add(self, manifest: WeightsManifest, path: Path) -> None:
        """Serve a version; it is the newest now. A new epoch ends the service of the one before."""
        latest = self.latest
        if latest is not None and latest.epoch != manifest.epoch:
            self._served.clear()
            self._checked.clear()
            self._deltas.clear()
        self._served[(manifest.epoch, manifest.version)] = (manifest, path)
        while len(self._served) > self._keep:
            _, dropped = self._served.pop(next(iter(self._served)))
            self._checked.pop(dropped, None)

    def add_delta(self, report: DeltaReport) -> None:
        """Serve a delta to a version that was added."""
        delta = report.delta
        self._deltas[(delta.result.epoch, delta.base.version, delta.result.version)] = report
        while len(self._deltas) > DELTAS_KEPT:
            self._checked.pop(Path(self._deltas.pop(next(iter(self._deltas))).path), None)

    def deltas_to(self, epoch: int, version: int) -> tuple[WeightsDelta, ...]:
        """Return what is served of an epoch and goes no further than a version."""
        found = (report.delta for report in self._deltas.values())
        return tuple(one for one in found if one.result.epoch == epoch and one.result.version <= version)

    def intact_delta(self, epoch: int, base: int, result: int) -> Path | None:
        """Return where a delta lies, or None when it is not served or damaged. Blocks: a changed file is read."""
        report = self._deltas.get((epoch, base, result))
        if report is None:
            return None
        path = Path(report.path)
        if not self.holds(path, report.delta.sha256, report.delta.size):
            log.warning("delta_damaged", epoch=epoch, version=result, path=report.path)
            return None
        return path

    @property
    def digests(self) -> frozenset[str]:
        """Of all files that are served."""
        whole = {manifest.sha256 for manifest, _ in self._served.values()}
        return frozenset(whole | {report.delta.sha256 for report in self._deltas.values()})

    def intact_file(self, sha256: str) -> Path | None:
        """Return where the version or delta of this digest lies, or None as above. Blocks as they do."""
        for manifest, _ in self._served.values():
            if manifest.sha256 == sha256:
                return self.intact_path(manifest.epoch, manifest.version)
        for report in self._deltas.values():
            if report.delta.sha256 == sha256:
                told = report.delta
                return self.intact_delta(told.result.epoch, told.base.version, told.result.version)
        return None

    @property
    def is_latest_damaged(self) -> bool:
        """Whether the newest version's file was damaged when it was asked for last."""
        return self._damaged is not None and self._damaged == self.latest

    def intact_path(self, epoch: int, version: int) -> Path | None:
        """Return where a version lies, or None when it is not served or damaged. Blocks: a changed file is read."""
        served = self._served.get((epoch, version))
        if served is None or not self._is_intact(*served):
            return None
        return served[1]

    def _is_intact(self, manifest: WeightsManifest, path: Path) -> bool:
        if not self.holds(path, manifest.sha256, manifest.size):
            self._note_damage(manifest, path)
            return False
        if self._damaged == manifest:
            self._damaged = None
        return True

    def holds(self, path: Path, sha256: str, size: int) -> bool:
        """Does the file hold what was published? Blocks: one that has changed since the last look is read."""
        with self._checking:
            try:
                stat = path.stat()
                found = sha256, stat.st_size, stat.st_mtime_ns
                if self._checked.get(path) != found and (stat.st_size != size or sha256_of(path) != sha256):
                    return False
            except OSError:
                return False
            self._checked[path] = found
            return True

    def _note_damage(self, manifest: WeightsManifest, path: Path) -> None:
        """Only the newest file must be there: the trainer drops older ones, and no reader waits for them."""
        if manifest == self.latest and manifest != self._damaged:
            self._damaged = manifest
            log.error("weights_damaged", epoch=manifest.epoch, version=manifest.version, path=str(path))

    def path(self, epoch: int, version: int) -> Path | None:
        """Return where a version lies, or None when it is not served."""
        served = self._served.get((epoch, version))
        return served[1] if served else None
