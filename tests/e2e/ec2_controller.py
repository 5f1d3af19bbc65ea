"""A controller's process on machines of (emulated) EC2, which dies at the moment it is told to.

It goes on until every node's machine runs (or, of a run that stops, until the run has ended); at the NTH call of an
operation it kills itself as `kill -9` does, before or after the call had its effect.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hexcloud.adapters.clock import RunClock
from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.outside import Ports, RunSecrets, Timing
from hexcloud.controller.reconcile import ENDED, Controller
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.ports import Coordinator
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.prices import SimMarket
from hexcloud.simulator.world import small_market, small_run
from tests.e2e.ec2_launcher import Ec2Launcher

REGIONS = ("us-east-1", "us-west-2")
TIMING = Timing(poll_s=0.05, provision_s=60.0, setup_s=60.0, register_s=600.0)
AWAKE = {NodeStatus.STARTING}
Moment = tuple[str, int, str] | None
"""Operation, which call of it from 0 on, `before` or `after` its effect."""


class Doom:
    """Counts calls by name and kills this process at one of them."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._calls: Counter[str] = Counter()

    @contextmanager
    def around(self, operation: str) -> Iterator[None]:
        nth = self._calls[operation]
        self._calls[operation] += 1
        self._strike((operation, nth, "before"))
        try:
            yield
        finally:
            self._strike((operation, nth, "after"))

    def _strike(self, moment: tuple[str, int, str]) -> None:
        if moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


class Watched:
    """An object whose calls are counted."""

    def __init__(self, inner: object, doom: Doom) -> None:
        self._inner, self._doom = inner, doom

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*arguments: object) -> object:
            with self._doom.around(name):
                return method(*arguments)

        return call


def new_run(folder: Path, samples_per_s: float) -> RunRecord:
    """Return a run on two regions of AWS that begins now."""
    clock = RunClock(0.0, 0.0)
    policy = Policy(target_samples_per_s=samples_per_s, clouds=("aws",), spot_trainer=False)
    run = small_run(VirtualClock(clock.now_s(), clock.wall_s()), policy)
    return run.model_copy(update={"id": run_name(folder), "run_dir": str(folder)})


def run_name(folder: Path) -> str:
    """Return the run's id, spelt as a tag may be."""
    return f"ec2-{folder.name}".lower().replace("_", "-")


def nobody() -> Coordinator:
    """No program runs on the machines, so no coordinator ever answers."""
    raise EngineError("no coordinator")


def open_controller(folder: Path, samples_per_s: float, doom: Doom) -> tuple[Controller, SqliteStore, RunRecord]:
    """Return the controller of the folder's run, as its process has it."""
    store = SqliteStore(folder / "hexcloud.db")
    run = next(iter(store.runs()), None) or new_run(folder, samples_per_s)
    if not store.runs():
        store.save_run(run)
    launcher: Any = Watched(Ec2Launcher(run.id, REGIONS, doom.around), doom)
    watched: Any = Watched(store, doom)
    ports = Ports(
        clock=RunClock.of(run),
        market=SimMarket(small_market()),
        provisioner=launcher,
        coordinator=nobody,
        store=watched,
        secrets=RunSecrets(b"0123456789abcdef"),
        timing=TIMING,
    )
    return Controller(run, ports), store, run


def is_through(store: SqliteStore, run: RunRecord) -> bool:
    """Do all machines of a run run, or has it ended?"""
    now = store.run(run.id)
    assert now is not None
    if now.state is RunState.RUNNING:
        standing = [node for node in store.nodes(run.id) if node.status is not NodeStatus.GONE]
        return bool(standing) and all(node.status in AWAKE for node in standing)
    return now.state in ENDED


def main(folder: Path, samples_per_s: float, moment: Moment, environment: dict[str, str]) -> None:
    """Be the controller's process."""
    os.environ.update(environment)
    controller, store, run = open_controller(folder, samples_per_s, Doom(moment))
    while True:
        controller.reconcile_once()
        if is_through(store, run):
            return
        RunClock.of(run).sleep(TIMING.poll_s)
