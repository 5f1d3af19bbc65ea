from collections import Counter
from pathlib import Path

import pytest

from hexcloud.domain.messages import StepReport
from hexcloud.domain.metrics import METRICS_FILE, StepRow
from hexcloud.runtime.coordinator_metrics import OverlapMeter, RunMetrics, StepFacts


def report(version: int, reward: float = 0.5, wait_s: float = 0.25) -> StepReport:
    return StepReport(
        epoch=0, version=version, path="/w", sha256="x", size=1, reward=reward, wait_s=wait_s, busy_s=0.5, tokens=60
    )


def facts(now_s: float, ages: dict[int, int]) -> StepFacts:
    return StepFacts(now_s, Counter(ages), dropped_samples=3, filtered_samples=8)


def test_overlap_is_the_time_in_which_both_work() -> None:
    meter = OverlapMeter()
    meter.note(0.0, trainer_works=False, rollout_works=True)
    meter.note(100.0, trainer_works=True, rollout_works=True)  # time counts from here
    meter.note(106.0, trainer_works=True, rollout_works=False)
    meter.note(108.0, trainer_works=False, rollout_works=True)
    meter.note(110.0, trainer_works=True, rollout_works=True)
    assert meter.share == pytest.approx(0.6)


def test_no_time_counts_after_the_run_is_over() -> None:
    meter = OverlapMeter()
    meter.note(0.0, trainer_works=True, rollout_works=True)
    meter.note(1.0, trainer_works=False, rollout_works=True)
    meter.close()
    meter.note(100.0, trainer_works=False, rollout_works=False)
    assert meter.share == 1.0


def test_overlap_is_zero_before_the_first_step() -> None:
    meter = OverlapMeter()
    meter.note(0.0, trainer_works=False, rollout_works=True)
    assert meter.share == 0.0


def test_each_step_is_one_row_that_reads_back(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path)
    metrics.end_step(report(1), facts(10.0, {0: 6, 1: 2}))
    metrics.end_step(report(2, reward=0.7), facts(11.0, {1: 8}))
    rows = [StepRow.model_validate_json(line) for line in (Path(tmp_path) / METRICS_FILE).read_text().splitlines()]
    assert [(row.version, row.wall_s, row.samples, row.staleness) for row in rows] == [
        (1, 10.0, 8, {0: 6, 1: 2}),
        (2, 11.0, 8, {1: 8}),
    ]
    assert (rows[0].dropped_samples, rows[0].filtered_samples, rows[0].tokens) == (3, 8, 60)
    assert metrics.staleness == {0: 6, 1: 10}
    assert metrics.reward == pytest.approx(0.6)


def test_the_wait_before_the_first_step_is_start_up_and_does_not_count(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path)
    metrics.end_step(report(1, wait_s=30.0), facts(10.0, {0: 8}))
    assert metrics.trainer_wait_s == 0.0
    metrics.end_step(report(2, wait_s=0.5), facts(11.0, {0: 8}))
    assert metrics.trainer_wait_s == 0.5


def test_the_rate_is_over_recent_steps_and_falls_when_none_comes(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path)
    assert metrics.samples_per_s(0.0) == 0.0
    for version in range(1, 40):
        metrics.end_step(report(version), facts(2.0 * version, {0: 8}))
    assert metrics.samples_per_s(78.0) == pytest.approx(4.0)
    assert metrics.samples_per_s(116.0) == pytest.approx(2.0)


def test_the_first_step_begins_when_the_trainer_got_its_first_batch(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path)
    metrics.begin_step(5.0)
    metrics.begin_step(6.0)
    assert metrics.first_step_at_s == 5.0
