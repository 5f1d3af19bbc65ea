"""Somebody who rents in the bed: a run's files, the command line, and what the run's own store says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from hexcloud.domain.metrics import METRICS_FILE, StepRow
from tests.e2e.cloud.bed import Bed

HEXCLOUD = [sys.executable, "-m", "hexcloud.cli"]
LOOK_S = 4.0
"""Between two looks: each is a program to start, and the machine has other things to do."""
PASSED = ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"]
RUN: dict[str, Any] = {
    "model": "Qwen2.5-0.5B",
    "batch": 32,
    "group": 8,
    "eta": 4,
    "target": "2k",
    "provider": "skypilot",
    "pass_env": PASSED,
    "refresh": "45s",
    "steps": 1_000_000,
}
POLICY: dict[str, Any] = {
    "objective": "min_cost",
    "clouds": ["aws"],
    "spot_trainer": True,
    # The test has minutes where a run has hours: a move pays back at once.
    "min_dwell_s": 0.0,
    "switch_factor": 0.1,
}


class Renter:
    """One run of one test."""

    def __init__(self, bed: Bed, name: str, **changes: Any) -> None:
        self.bed = bed
        self.name = name
        self._folder = bed.folder / name
        self._folder.mkdir()
        policy = self._folder / "policy.yaml"
        policy.write_text(yaml.safe_dump({"name": name, "regions": bed.regions, **POLICY}))
        run = {"name": name, "policy": str(policy), "store": f"{bed.store}/{name}", **RUN, **changes}
        self.file = self._folder / "run.yaml"
        self.file.write_text(yaml.safe_dump(run))
        self.eta: int = run["eta"]
        self._up: subprocess.Popen[bytes] | None = None

    def starts(self) -> None:
        self._up = self.bed.start_program(self.name, [*HEXCLOUD, "up", str(self.file), "--yes"])

    def log(self) -> str:
        return (self.bed.folder / "logs" / f"{self.name}.log").read_text()

    def asks(self, *arguments: str) -> Any:
        return json.loads(self.bed.run([*HEXCLOUD, arguments[0], self.name, *arguments[1:], "--json"]).stdout)

    def status(self) -> Mapping[str, Any]:
        done = self.bed.run([*HEXCLOUD, "status", self.name, "--json"], check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {"step": 0, "state": "unknown"}

    def events(self, *kinds: str) -> list[Any]:
        done = self.bed.run([*HEXCLOUD, "events", self.name, "--json"], check=False)
        told = json.loads(done.stdout) if done.returncode == 0 else []
        return [event for event in told if not kinds or event["kind"] in kinds]

    def waits(self, what: str, is_so: Callable[[], bool], within_s: float) -> float:
        """Wait until it is so; return the seconds it took. Fails when the run has ended, or the time is over."""
        begun_at = time.monotonic()
        while not is_so():
            assert self._up is not None
            if self._up.poll() is not None or time.monotonic() > begun_at + within_s:
                pytest.fail(f"{what}: not after {time.monotonic() - begun_at:.0f} s\n{self.story()}")
            time.sleep(LOOK_S)
        took_s = time.monotonic() - begun_at
        sys.stdout.write(f"{self.name}: {what} after {took_s:.0f} s\n")
        return took_s

    def waits_for_step(self, step: int, within_s: float = 900.0) -> float:
        return self.waits(f"step {step}", lambda: int(self.status()["step"]) >= step, within_s)

    def is_downed(self) -> None:
        self.bed.run([*HEXCLOUD, "down", self.name, "--yes"])

    def ends(self, within_s: float = 900.0) -> None:
        assert self._up is not None
        self._up.wait(timeout=within_s)

    def is_killed(self) -> None:
        """The controller dies as in a power cut."""
        assert self._up is not None
        os.kill(self.bed.pid_of(self._up), signal.SIGKILL)
        self._up.wait()

    def nodes(self, role: str) -> list[dict[str, Any]]:
        """Return this run's machines that run, of a role, by their tags."""
        found = []
        for instance in self.bed.running():
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
            if tags.get("hexcloud-slot", "").startswith(role):
                found.append(instance)
        return found

    def story(self) -> str:
        """Return what one needs to see why a run went astray."""
        events = "\n".join(f"{event['wall_s']:.0f} {event['kind']}: {event['text']}" for event in self.events())
        machines = "\n".join(f"{one.zone} {one.seconds:.0f} s {dict(one.tags)}" for one in self.bed.billed())
        parts = {
            "events": events,
            "machines": machines,
            "controller": self.log()[-4000:],
            "nodes": self.bed.node_logs(),
        }
        return "\n".join(f"---- {name}\n{said}" for name, said in parts.items())

    def steps(self, run: str) -> list[StepRow]:
        """Return what was trained, as the run's own folder keeps it."""
        rows = (self.bed.home / "hexcloud/runs" / run / METRICS_FILE).read_text().splitlines()
        return [StepRow.model_validate_json(row) for row in rows]

    def ledger(self) -> Mapping[str, tuple[float, float]]:
        """Return each node's seconds and USD of rent by the run's own book."""
        said = json.loads(self.bed.run([sys.executable, "-c", _LEDGER, self.name]).stdout)
        return {node: (seconds, usd) for node, (seconds, usd) in said.items()}


_LEDGER = """
import json, sys
from collections import defaultdict
from hexcloud import wiring
store = wiring.open_store()
run = max((run for run in store.runs() if run.spec.name == sys.argv[1]), key=lambda run: run.created_wall_s)
rent = defaultdict(lambda: [0.0, 0.0])
for entry in store.ledger(run.id):
    if entry.kind == "compute":
        rent[entry.node_id][0] += entry.to_s - entry.from_s
        rent[entry.node_id][1] += entry.usd
print(json.dumps(rent))
"""
