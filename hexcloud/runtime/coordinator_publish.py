"""Publisher: takes the trainer's word that a version is on disk, in the one order that is safe.

First the version counts (or a recovery is made), then it is served. Nothing is awaited in between, so no worker sees
one without the other, and a version that is refused is never served.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog

from hexcloud.admission.admission import Admission
from hexcloud.domain.errors import HexcloudError
from hexcloud.domain.messages import StepReport, WeightsManifest
from hexcloud.runtime.coordinator_metrics import RunMetrics, StepFacts
from hexcloud.runtime.coordinator_weights import PublishedWeights

log = structlog.get_logger()


class ConflictError(HexcloudError):
    """What was reported contradicts what is known; a repetition will not help."""


class Publisher:
    """Takes three kinds of publication, told apart by epoch and version.

    The weights that a run begins with; those of the batch in training; and with a higher epoch, the checkpoint that a
    restarted trainer goes on from.
    """

    def __init__(
        self, admission: Admission, weights: PublishedWeights, metrics: RunMetrics, clock: Callable[[], float]
    ) -> None:
        self._admission = admission
        self._weights = weights
        self._metrics = metrics
        self._clock = clock

    def publish(self, report: StepReport) -> None:
        """Take a publication; a repetition changes nothing. Raises ConflictError."""
        if self._is_repeated(report):
            return
        if report.epoch > self._admission.epoch:
            self._recover(report)
        elif report.epoch < self._admission.epoch:
            raise ConflictError(f"epoch {report.epoch} was abandoned; this is epoch {self._admission.epoch}")
        elif self._weights.latest is not None:
            self._end_step(report)
        elif report.version != self._admission.version:
            raise ConflictError(f"version {report.version} is not {self._admission.version}, where the run begins")
        manifest = WeightsManifest(epoch=report.epoch, version=report.version, sha256=report.sha256, size=report.size)
        self._weights.add(manifest, Path(report.path))
        if report.delta is not None and report.delta.delta.result == manifest:
            self._weights.add_delta(report.delta)
        self._metrics.checkpoint_version = max(self._metrics.checkpoint_version, report.checkpoint_version)

    def _is_repeated(self, report: StepReport) -> bool:
        latest = self._weights.latest
        if latest is None or (latest.epoch, latest.version) != (report.epoch, report.version):
            return False
        if latest.sha256 != report.sha256:
            raise ConflictError(f"version {report.version} was published with other content")
        return True

    def _recover(self, report: StepReport) -> None:
        try:
            self._admission.recover(report.epoch, report.version, self._clock())
        except ValueError as error:
            raise ConflictError(str(error)) from error
        log.warning("trainer_recovered", epoch=report.epoch, version=report.version)

    def _end_step(self, report: StepReport) -> None:
        admission = self._admission
        try:
            groups = admission.publish(report.version)
        except ValueError as error:
            raise ConflictError(str(error)) from error
        law, step = admission.terms.law, report.version - 1
        ages = Counter(law.age(step, sample.oldest_version) for group in groups for sample in group.samples)
        facts = StepFacts(self._clock(), ages, admission.dropped_samples, admission.filtered_samples)
        self._metrics.end_step(report, facts)
