"""`hexcloud up` as a user runs it, with real processes: nobody watches, Ctrl-C, a market that moves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HEXCLOUD = [sys.executable, "-m", "hexcloud.cli"]
SPEND_LEASE_S = 60.0


class User:
    """Somebody at a terminal, with a hexcloud home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "HEXCLOUD_HOME": str(home), "OMP_NUM_THREADS": "1"}

    def starts(self, *arguments: str) -> "subprocess.Popen[str]":
        self.started = subprocess.Popen(
            [*HEXCLOUD, "up", "--yes", *arguments],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.started

    def asks(self, *arguments: str) -> Any:
        done = subprocess.run(
            [*HEXCLOUD, *arguments, "--json"], env=self.env, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def events(self, kind: str) -> list[Any]:
        return [event for event in self.asks("events") if event["kind"] == kind]

    def waits_for_step(self, step: int) -> None:
        gives_up_at = time.monotonic() + 400
        while time.monotonic() < gives_up_at:
            done = subprocess.run(
                [*HEXCLOUD, "status", "--json"], env=self.env, capture_output=True, text=True, check=False
            )
            if done.returncode == 0 and json.loads(done.stdout)["step"] >= step:
                return
            if self.started.poll() is not None:
                pytest.fail(f"`hexcloud up` has ended: {self.started.communicate()[1]}")
            time.sleep(1.0)
        pytest.fail(f"step {step} was not reached; see {self.home}")

    def processes(self) -> list[psutil.Process]:
        """Every living process that works in a node's folder of this home."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and str(self.home) in process.cwd():
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path / "home")
    yield user
    for process in user.processes():
        process.kill()


def test_a_fleet_nobody_watches_ends_itself(user: User) -> None:
    controller = user.starts("--steps", "100000", "--trace", "none")
    user.waits_for_step(3)
    controller.kill()
    controller.communicate()
    assert user.processes(), "the nodes outlive their controller"
    gives_up_at = time.monotonic() + SPEND_LEASE_S + 120
    while user.processes() and time.monotonic() < gives_up_at:
        time.sleep(1.0)
    assert user.processes() == [], "the spend lease has lapsed"


def test_ctrl_c_writes_a_checkpoint_and_ends_what_it_started(user: User) -> None:
    controller = user.starts("--steps", "100000", "--trace", "none", "--json")
    user.waits_for_step(5)
    controller.send_signal(signal.SIGINT)
    out, errors = controller.communicate(timeout=240)
    report = json.loads(out)
    assert report["nodes_left"] == 0, errors
    assert user.processes() == []
    assert user.events("node_lost") == []
    run_dir = user.home / "runs" / report["run"]
    assert list((run_dir / "checkpoints").iterdir())
    assert (Path(report["output"]) / "model.safetensors").exists()


def test_a_price_that_rises_for_good_moves_a_node_and_a_killed_one_is_replaced(user: User, tmp_path: Path) -> None:
    plan = user.asks("plan", "--target-throughput", "20k")
    spot = [row["offer"] for row in plan["allocation"] if row["role"] == "rollout"]
    trace = tmp_path / "trace.csv"
    trace.write_text(
        f"at_h,event,offer,usd_per_hour,count\n0.9,price,{spot[0]},x3,\n1.3,preempt,*/spot,,1\n", encoding="utf-8"
    )
    run = user.starts("--steps", "230", "--trace", str(trace), "--target-throughput", "20k", "--json")
    out, errors = run.communicate(timeout=600)
    report = json.loads(out)
    assert run.returncode == 0, errors
    moves = [row for row in report["replans"] if row["verdict"] == "moved"]
    assert [row["trigger"] for row in moves] == ["start", "price", "loss"]
    assert moves[1]["usd_per_hour_after"] < moves[1]["usd_per_hour_before"]
    assert len(report["losses"]) == 1
    assert {row["kind"] for row in report["fleet_changes"]} == {"added", "removed", "lost"}
    assert report["max_staleness"] <= report["eta"]
    assert report["mean_staleness"] >= 0.5
    assert report["overlap_share"] >= 0.5
    assert report["reward_last_fifth"] > report["reward_first_fifth"]
    assert report["nodes_left"] == 0
