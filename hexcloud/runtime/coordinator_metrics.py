"""What the coordinator measures of a run: one StepRow per version, and the figures of RunView. All from real events."""

from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path

from hexcloud.domain.messages import StepReport
from hexcloud.domain.metrics import METRICS_FILE, StepRow

RECENT_STEPS = 20
"""Steps over which rate and reward are "recent"."""


class OverlapMeter:
    """Integrates how long trainer and rollout work at once, from the first step on. Times are wall seconds."""

    def __init__(self) -> None:
        self._noted_at_s: float | None = None
        self._is_both = False
        self._is_closed = False
        self._both_s = 0.0
        self._total_s = 0.0

    @property
    def share(self) -> float:
        """The share of the time up to the last note; 0 before the first."""
        return self._both_s / self._total_s if self._total_s > 0 else 0.0

    def note(self, now_s: float, trainer_works: bool, rollout_works: bool) -> None:
        """Say who works from now on. Time counts from the first note with a working trainer."""
        if self._is_closed or (self._noted_at_s is None and not trainer_works):
            return
        if self._noted_at_s is not None:
            span_s = max(0.0, now_s - self._noted_at_s)
            self._total_s += span_s
            self._both_s += span_s if self._is_both else 0.0
        self._noted_at_s = now_s
        self._is_both = trainer_works and rollout_works

    def close(self) -> None:
        """Count no time after the last note: the run is over."""
        self._is_closed = True


@dataclass(frozen=True)
class StepFacts:
    """What the coordinator knows of a published step besides the trainer's report."""

    now_s: float
    ages: Counter[int]
    """Age of each trained sample's oldest token -> samples."""
    dropped_samples: int
    filtered_samples: int


class RunMetrics:
    """Appends to `metrics.jsonl` and keeps the running figures."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / METRICS_FILE
        self._recent: deque[StepRow] = deque(maxlen=RECENT_STEPS)
        self._steps = 0
        self.overlap = OverlapMeter()
        self.staleness: Counter[int] = Counter()
        self.trainer_wait_s = 0.0
        self.first_step_at_s: float | None = None
        """When the trainer got its first batch."""
        self.last_step_at_s: float | None = None
        """When the newest version was published."""
        self.checkpoint_version = -1

    @property
    def reward(self) -> float:
        """Mean reward of recent steps; 0 before the first."""
        return sum(row.reward for row in self._recent) / len(self._recent) if self._recent else 0.0

    def begin_step(self, now_s: float) -> None:
        """Note that the trainer was given a batch."""
        if self.first_step_at_s is None:
            self.first_step_at_s = now_s

    def end_step(self, report: StepReport, facts: StepFacts) -> None:
        """Note a published step and append its row."""
        if self._steps:  # the wait before the first step is the start-up of the fleet
            self.trainer_wait_s += report.wait_s
        self._steps += 1
        self.staleness += facts.ages
        self.last_step_at_s = facts.now_s
        row = StepRow(
            wall_s=facts.now_s,
            samples=facts.ages.total(),
            dropped_samples=facts.dropped_samples,
            filtered_samples=facts.filtered_samples,
            staleness=dict(sorted(facts.ages.items())),
            **report.model_dump(exclude={"path", "sha256", "size", "delta", "checkpoint_version"}),
        )
        self._recent.append(row)
        with self._path.open("a") as file:
            file.write(row.model_dump_json() + "\n")

    def samples_per_s(self, now_s: float) -> float:
        """Return the rate of trained samples over recent steps; it falls while nothing is published."""
        if len(self._recent) < 2:
            return 0.0
        # The first row only marks the beginning of the window: its samples were trained before.
        samples = sum(row.samples for row in self._recent) - self._recent[0].samples
        return samples / max(1e-9, now_s - self._recent[0].wall_s)
