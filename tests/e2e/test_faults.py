"""Faults at random moments of short runs of real processes: the run goes on, and the laws of the design hold."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from hexcloud.adapters.metrics import read_steps
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Role
from hexcloud.runtime.checkpoint_index import newest_checkpoint
from tests.e2e.test_local_run import BATCH, CHECKPOINT_EVERY, ETA, PATIENCE_S, LocalRun, runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 45
ROLLOUTS = ("rollout-a", "rollout-b")


@contextmanager
def begun(made: LocalRun) -> Iterator[LocalRun]:
    """A run that has begun, of one head and two rollout nodes; a busy machine may take its time for it."""
    try:
        made.start("trainer", Role.TRAINER, samples_per_s=200.0)
        for name in ROLLOUTS:
            made.start(name, Role.ROLLOUT, samples_per_s=100.0)
        made.until(lambda: made.watch().version >= 2, PATIENCE_S, "version 2")
        yield made
    finally:
        made.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    """A run whose nodes share a folder."""
    with begun(LocalRun(tmp_path, STEPS)) as made:
        yield made


def log_of(run: LocalRun, name: str) -> str:
    return (run.run_dir.parent / name / "log").read_text(errors="replace")


def finish(run: LocalRun) -> None:
    """Let the run end, and see that no law was broken on its way."""
    run.until(lambda: run.readmit() and run.watch().phase is RunPhase.DONE, PATIENCE_S, "the end of the run")
    view = run.watch()
    assert view.version == STEPS
    assert (run.output / "model.safetensors").exists()
    rows = read_steps(run.run_dir / "metrics.jsonl")
    assert max(age for row in rows for age in row.staleness) <= ETA, "a group over eta was trained"
    assert all(row.samples == BATCH for row in rows)
    assert Counter((row.epoch, row.version) for row in rows).most_common(1)[0][1] == 1, "a step was counted twice"
    trained = {row.version for row in rows}
    assert trained == set(range(1, STEPS + 1)), "a step is missing"
    for before, after in pairwise(rows):
        is_next = (after.epoch, after.version) == (before.epoch, before.version + 1)
        is_recovery = after.epoch > before.epoch and before.version - CHECKPOINT_EVERY < after.version
        assert is_next or is_recovery, f"{before.version} was followed by {after.version}"
    run.coordinator.stop("done")
    run.until(lambda: not run.living(), PATIENCE_S, "the end of all processes")


def engine_of(run: LocalRun, name: str) -> psutil.Process | None:
    children = psutil.Process(run.nodes[name].pid).children(recursive=True)
    return next((one for one in children if runs(one, "hexcloud.adapters.engines.embedded")), None)


def kill_engine(run: LocalRun, rng: random.Random) -> None:
    if (engine := engine_of(run, rng.choice(ROLLOUTS))) is not None:
        engine.kill()


def freeze_worker(run: LocalRun, rng: random.Random) -> None:
    """Let a node stop reading for longer than the coordinator waits for a heartbeat; it is back afterwards."""
    name = rng.choice(ROLLOUTS)
    os.killpg(run.nodes[name].pid, signal.SIGSTOP)
    told = f'"node": "{run_node(name)}", "event": "node_silent"'
    try:
        gives_up_at = time.monotonic() + 60
        while time.monotonic() < gives_up_at and not is_told_silent(run, name):
            run.watch()
            time.sleep(0.3)
        assert is_told_silent(run, name), told
    finally:
        os.killpg(run.nodes[name].pid, signal.SIGCONT)


def run_node(name: str) -> str:
    return f"e2e.{name}.0"


def is_told_silent(run: LocalRun, name: str) -> bool:
    lines = log_of(run, "trainer").splitlines()
    return any("node_silent" in line and run_node(name) in line for line in lines)


def lose_worker(run: LocalRun, rng: random.Random) -> None:
    """Kill a node with all that it has in hand, and start another one in its place."""
    name = rng.choice(ROLLOUTS)
    os.killpg(run.nodes[name].pid, signal.SIGKILL)
    run.nodes[name].wait(60)
    run.again(name, Role.ROLLOUT)


def tear_weights(run: LocalRun, rng: random.Random) -> None:
    """Damage what the trainer published last."""
    versions = sorted((run.run_dir / "weights").glob("*/model.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    if versions:
        content = versions[-1].read_bytes()
        versions[-1].write_bytes(content[: rng.randrange(len(content))])


def kill_trainer(run: LocalRun, rng: random.Random) -> None:
    run.child("hexcloud.runtime.trainer").kill()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_goes_on_whatever_becomes_of_workers_engines_and_files(run: LocalRun, seed: int) -> None:
    rng = random.Random(seed)
    faults: list[Callable[[LocalRun, random.Random], None]] = [kill_engine, lose_worker, tear_weights]
    faults.append(freeze_worker if seed == 1 else kill_trainer)
    rng.shuffle(faults)
    for fault, version in zip(faults, sorted(rng.sample(range(3, STEPS - 10), len(faults))), strict=True):
        run.until(lambda version=version: run.watch().version >= version, PATIENCE_S, f"version {version}")  # type: ignore[misc]
        fault(run, rng)
    finish(run)


def test_a_run_goes_on_when_its_head_is_killed_and_started_again(run: LocalRun) -> None:
    rng = random.Random(3)
    lost_at = rng.randrange(CHECKPOINT_EVERY + 2, STEPS - 10)
    run.until(lambda: run.watch().version >= lost_at, PATIENCE_S, f"version {lost_at}")
    time.sleep(rng.random())
    head = psutil.Process(run.nodes["trainer"].pid)
    for process in (head, *head.children(recursive=True)):
        process.kill()
    run.nodes["trainer"].wait(60)
    checkpoint = newest_checkpoint(run.run_dir)
    assert checkpoint is not None and checkpoint.version >= lost_at - CHECKPOINT_EVERY
    run.again("trainer", Role.TRAINER)
    run.until(lambda: run.readmit() and run.watch().epoch > checkpoint.epoch, PATIENCE_S, "a new head")
    finish(run)
    assert all(run.nodes[name].returncode == 0 for name in ROLLOUTS), "a worker lived through it"


class StoredRun(LocalRun):
    """Its head keeps checkpoints and the pointer in a store."""


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalRun, Path]]:
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.setattr(StoredRun, "changes", {"store": f"file://{store}"})
    with begun(StoredRun(tmp_path, STEPS)) as made:
        yield made, store


def test_a_run_goes_on_without_its_store_and_catches_up_when_it_is_back(stored: tuple[LocalRun, Path]) -> None:
    run, store = stored
    rng, away = random.Random(4), store.with_name("away")
    gone_at = rng.randrange(3, 15)
    run.until(lambda: run.watch().version >= gone_at, PATIENCE_S, f"version {gone_at}")
    store.rename(away)
    store.write_text("no folder any more")
    run.until(lambda: bool(run.watch().store_trouble), PATIENCE_S, "word of the store's absence")
    back_at = run.watch().version + rng.randrange(3, CHECKPOINT_EVERY)
    run.until(lambda: run.watch().version >= min(back_at, STEPS), PATIENCE_S, "steps without a store")
    store.unlink()
    away.rename(store)
    finish(run)
    assert not run.watch().store_trouble if run.living() else True
    assert list(store.rglob("checkpoints/*.json")), "no checkpoint came into the store"
