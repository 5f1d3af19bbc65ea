"""Somebody who rents in the bed: a run's files, the command line, and what the run's own store says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from hexcloud.adapters.store.sqlite import SqliteStore
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId
from hexcloud.domain.ledger import CostKind
from hexcloud.domain.metrics import METRICS_FILE, StepRow
from hexcloud.domain.run import RunRecord
from tests.e2e.cloud.bed import KEYS, Bed

HEXCLOUD = [sys.executable, "-m", "hexcloud.cli"]
LOOK_S = 2.0
"""Between two looks into the run's store: a program for each would keep a core busy that the machines need."""
PASSED = ["AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", *KEYS]
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
        self._is_astray = False
        self._store = SqliteStore(bed.home / "hexcloud/hexcloud.db")

    def starts(self) -> None:
        self._up = self.bed.start_program(self.name, [*HEXCLOUD, "up", str(self.file), "--yes"], env=KEYS)

    def log(self) -> str:
        return (self.bed.folder / "logs" / f"{self.name}.log").read_text()

    def asks(self, *arguments: str) -> Any:
        return json.loads(self.bed.run([*HEXCLOUD, arguments[0], self.name, *arguments[1:], "--json"]).stdout)

    def run(self) -> RunRecord | None:
        """Return the run, once there is one."""
        return next((run for run in self._store.runs() if run.spec.name == self.name), None)

    def step(self) -> int:
        run = self.run()
        view = self._store.view(run.id) if run else None
        return view.version if view else 0

    def events(self, *kinds: str) -> list[Event]:
        run = self.run()
        told = [event for _, event in self._store.events(run.id)] if run else []
        return [event for event in told if not kinds or event.kind in kinds]

    def records(self) -> dict[NodeId, Node]:
        """Return every node that the run ever had, as it knows it."""
        run = self.run()
        return {node.id: node for node in self._store.nodes(run.id)} if run else {}

    def waits(self, what: str, is_so: Callable[[], bool], within_s: float) -> float:
        """Wait until it is so; return the seconds it took. Fails when the run has ended, or the time is over."""
        assert not self._is_astray, "the run went astray before: see the failure above"
        begun_at = time.monotonic()
        while not is_so():
            if self._has_ended() or time.monotonic() > begun_at + within_s:
                self._is_astray = True
                pytest.fail(f"{what}: not after {time.monotonic() - begun_at:.0f} s\n{self.story()}")
            time.sleep(LOOK_S)
        took_s = time.monotonic() - begun_at
        sys.stdout.write(f"{self.name}: {what} after {took_s:.0f} s\n")
        return took_s

    def _has_ended(self) -> bool:
        return self._up is None or self._up.poll() is not None

    def waits_for_step(self, step: int, within_s: float = 900.0) -> float:
        return self.waits(f"step {step}", lambda: self.step() >= step, within_s)

    def begins_down(self) -> None:
        self.bed.start_program(f"{self.name}-down", [*HEXCLOUD, "down", self.name, "--yes"])

    def is_downed(self) -> None:
        self.bed.run([*HEXCLOUD, "down", self.name, "--yes"])

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
        events = "\n".join(f"{event.wall_s:.0f} {event.kind}: {event.text}" for event in self.events())
        machines = "\n".join(f"{one.zone} {one.seconds:.0f} s {dict(one.tags)}" for one in self.bed.billed())
        parts = {
            "events": events,
            "machines": machines,
            "controller": self.log()[-4000:],
            "nodes": self.bed.node_logs(),
        }
        return "\n".join(f"---- {name}\n{said}" for name, said in parts.items())

    def steps(self) -> list[StepRow]:
        """Return what was trained, as the run's own folder keeps it."""
        run = self.run()
        assert run is not None
        rows = (self.bed.home / "hexcloud/runs" / run.id / METRICS_FILE).read_text().splitlines()
        return [StepRow.model_validate_json(row) for row in rows]

    def ledger(self) -> Mapping[NodeId, tuple[float, float]]:
        """Return each node's seconds and USD of rent by the run's own book."""
        run = self.run()
        assert run is not None
        seconds, usd = defaultdict[NodeId, float](float), defaultdict[NodeId, float](float)
        for entry in self._store.ledger(run.id):
            if entry.kind is CostKind.COMPUTE:
                seconds[entry.node_id] += entry.to_s - entry.from_s
                usd[entry.node_id] += entry.usd
        return {node: (seconds[node], usd[node]) for node in seconds}
