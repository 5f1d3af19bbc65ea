"""The main job on the real engine: two SGLang servers on this CPU, weights taken while requests are in flight."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hexcloud.adapters.engines.sglang_home import SGLANG_PYTHON, find_sglang
from hexcloud.domain.errors import ConfigError

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

ETA = 4
RUN = f"""
name: on-sglang
engine: sglang
target: 5k        # two rollout machines, one GPU each
batch: 64
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
    assert report["losses"] == []
    assert (Path(report["output"]) / "model.safetensors").exists()
    assert processes(home) == []
    logs = sorted((home / "runs" / report["run"] / "nodes").glob("*rollout*/node.log"))
    assert len(logs) == 2
    for log in logs:
        events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        named = [event["event"] for event in events]
        assert named.count("sglang_ready") == 1, "one server, never restarted"
        assert named.count("weights_loaded") > 3, "new weights, while it ran"
        (ended,) = (event for event in events if event["event"] == "sglang_ended" and event["generations"])
        assert ended["of_several_versions"] > 0, "updates met requests in flight, which went on under both versions"
        assert "generation_failed" not in named and "engine_call_failed" not in named


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
