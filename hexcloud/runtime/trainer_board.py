"""TensorBoard scalars of a run. The library is imported on first use: it takes a second, and a run can do without."""

from pathlib import Path
from typing import Protocol

from hexcloud.domain.messages import StepReport
from hexcloud.domain.metrics import StepNumbers

_SCALARS = (*StepNumbers.model_fields, "busy_s", "wait_s", "tokens_per_s", "mfu", "ranks")


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def close(self) -> None: ...


class Board:
    """Writes to `tensorboard/` of a run's folder."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "tensorboard"
        self._writer: _Writer | None = None

    def step(self, report: StepReport) -> None:
        """Add the numbers of a training step."""
        for name in _SCALARS:
            if (value := getattr(report, name)) is not None:
                self._open().add_scalar(f"train/{name}", value, report.version)

    def accuracy(self, accuracy: float, version: int) -> None:
        """Add an evaluation."""
        self._open().add_scalar("eval/accuracy", accuracy, version)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> _Writer:
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), flush_secs=5)
        return self._writer
