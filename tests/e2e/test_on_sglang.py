"""The main job on two real SGLang servers on this machine's CPU, which take weights while requests are in flight."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hexcloud.adapters.engines.sglang_home import SGLANG_PYTHON, find_sglang
from hexcloud.domain.errors import ConfigError

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

ETA, BATCH = 4, 256
"""A step a second wants more samples than the servers make on a CPU: they are always at work when weights arrive."""
RUN = f"""
name: on-sglang
engine: sglang
target: 5k        # two rollout machines, one GPU each
batch: {BATCH}
group: 8
eta: {ETA}
steps: 20
trace: null
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    try:
        find_sglang(os.environ).require_cpu()
    except ConfigError as error:
        pytest.skip(str(error))
    yield tmp_path
    for process in processes(tmp_path):
        process.kill()


def processes(home: Path) -> list[psutil.Process]:
    """Every living process that works below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(home) in process.cwd():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_twenty_steps_on_two_servers_stay_within_eta_and_leave_nothing(home: Path) -> None:
    (home / "run.yaml").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "-m", "hexcloud.cli", "up", str(home / "run.yaml"), "--yes", "--json"],
        env={**os.environ, "HEXCLOUD_HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == 20
    assert report["max_staleness"] <= report["eta"] == ETA
    assert report["nodes_left"] == 0
    assert (Path(report["output"]) / "model.safetensors").exists()
    assert processes(home) == []
    served = [
        events for events in map(events_of, (home / "runs" / report["run"] / "nodes").glob("*rollout*")) if events
    ]
    assert sum("sglang_ready" in names(events) for events in served) >= 2
    assert not any({"generation_failed", "engine_call_failed", "weights_load_failed"} & names(one) for one in served)
    ends = [event for events in served for event in events if event["event"] == "sglang_ended"]
    assert sum(end["generations"] for end in ends) >= 20 * BATCH
    assert sum(end["of_several_versions"] for end in ends) > 0, (
        "updates met requests, which went on under both versions"
    )


def events_of(node: Path) -> list[dict[str, Any]]:
    """What a node said; one that could not be admitted in time, on a machine that others hold, never had an engine."""
    events = [json.loads(line) for line in (node / "node.log").read_text().splitlines() if line.startswith("{")]
    return events if any(event["event"] == "engine_start" for event in events) else []


def names(events: list[dict[str, Any]]) -> set[str]:
    return {event["event"] for event in events}


def test_a_run_on_sglang_without_sglang_is_refused_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)
    env = {**os.environ, "HEXCLOUD_HOME": str(tmp_path / "home"), SGLANG_PYTHON: str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-m", "hexcloud.cli", "up", str(tmp_path / "run.yaml"), "--yes"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "make sglang" in done.stderr
    assert not (tmp_path / "home" / "runs").exists()
