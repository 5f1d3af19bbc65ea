"""RunCopy: brings what a run's head left in the store into the run's own folder, for status and report."""

import os
from pathlib import Path

from hexcloud.adapters.stored_folder import download_files
from hexcloud.domain.errors import StoreError
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.stored import METRICS, OUTPUT
from hexcloud.ports import Objects


class RunCopy:
    """Every call raises StoreError when the store is away or the disk is full; what was there before stays then."""

    def __init__(self, objects: Objects, run_dir: Path, secret: str) -> None:
        """`secret` is what heads sign with (HEXCLOUD_CONTROLLER_TOKEN)."""
        self._objects = objects
        self._metrics = run_dir / METRICS_FILE
        self._secret = secret

    def bring_metrics(self) -> None:
        """Replace `metrics.jsonl` by what all heads of the run have stored, in the order of their epochs."""
        parts = [self._objects.get(name) or b"" for name in self._objects.list(METRICS)]
        draft = self._metrics.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.write_bytes(b"".join(parts))
            draft.replace(self._metrics)
        except OSError as error:
            raise StoreError(f"{self._metrics}: {error.strerror}") from error

    def bring_output(self, output: Path) -> bool:
        """Bring the run's result, verified; False as long as the store has none that is whole."""
        try:
            return download_files(self._objects, OUTPUT, output, self._secret)
        except OSError as error:
            raise StoreError(f"{output}: {error.strerror}") from error
