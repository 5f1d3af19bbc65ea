"""PublishedWeights: which versions the coordinator serves. The files stay the trainer's."""

from pathlib import Path

from hexcloud.domain.messages import WeightsManifest


class PublishedWeights:
    """The newest `keep` versions of the current epoch; those of abandoned epochs are served no more."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._served: dict[tuple[int, int], tuple[WeightsManifest, Path]] = {}

    @property
    def latest(self) -> WeightsManifest | None:
        """The newest version, or None before the first publication."""
        return next(reversed(self._served.values()))[0] if self._served else None

    def add(self, manifest: WeightsManifest, path: Path) -> None:
        """Serve a version; it is the newest now. A new epoch ends the service of the one before."""
        latest = self.latest
        if latest is not None and latest.epoch != manifest.epoch:
            self._served.clear()
        self._served[(manifest.epoch, manifest.version)] = (manifest, path)
        while len(self._served) > self._keep:
            del self._served[next(iter(self._served))]

    def path(self, epoch: int, version: int) -> Path | None:
        """Return where a version lies, or None when it is not served."""
        served = self._served.get((epoch, version))
        return served[1] if served else None
