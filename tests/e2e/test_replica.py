"""A run with replicas of two machines, with real processes: a member is killed, and its replica is replaced whole."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hexcloud.adapters.clock import RunClock
from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.provisioners.node_dir import NodeDir
from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.gang import BROKEN_GANG, replicas
from hexcloud.controller.outside import EmulationPlan, Ports, RunSecrets, Timing
from hexcloud.controller.reconcile import ENDED, Controller
from hexcloud.domain.fleet import LIVE, Node, NodeStatus, RunId
from hexcloud.domain.messages import POINTER_FILE
from hexcloud.domain.plan import Role
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.simulator.prices import SimMarket
from tests.controller.wide import TARGET, wide_market, wide_workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BATCH, GROUP = 16, 4
STEPS = 100_000
WEIGHT_BYTES = 540_000.0
WAIT_S = 300.0


class WideRun:
    """A controller in this process over real nodes; the market is made up, so that a replica takes two machines."""

    def __init__(self, folder: Path) -> None:
        workload = wide_workload().model_copy(update={"samples_per_step": BATCH, "group_size": GROUP})
        now = time.time()
        self.record = RunRecord(
            id=RunId("wide"),
            spec=RunSpec(name="wide", steps=STEPS, batch=BATCH, group=GROUP, trace=None),
            workload=workload,
            policy=TARGET.model_copy(update={"max_gang_nodes": 1}),
            state=RunState.RUNNING,
            created_wall_s=now,
            clock_origin_run_s=now,
            clock_origin_wall_s=now,
            clock_scale=BATCH / (TARGET.target_samples_per_s or 1.0),
            run_dir=str(folder),
            output=str(folder / "output"),
        )
        self.store = SqliteStore(folder / "hexcloud.db")
        self.store.save_run(self.record)
        keys = RunSecrets(b"0123456789abcdef")
        credentials = Credentials(run_id=self.record.id, secret=keys.run_secret, token=keys.controller_token)
        line = HttpCoordinator(folder / POINTER_FILE, credentials)
        self.provisioner = LocalProvisioner(folder, RunClock.of(self.record))
        self.ports = Ports(
            clock=RunClock.of(self.record),
            market=SimMarket(wide_market()),
            provisioner=self.provisioner,
            coordinator=lambda: line,
            store=self.store,
            secrets=keys,
            emulation=EmulationPlan(self.record.clock_scale, WEIGHT_BYTES),
            timing=Timing(silent_rollout_s=60.0),
            python=sys.executable,
        )
        self.controller = Controller(self.record, self.ports)
        self._folder = folder

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        gives_up_at = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < gives_up_at, f"no {what}; see {self._folder}"
            self.controller.reconcile_once()
            time.sleep(0.5)

    def nodes(self, role: Role = Role.ROLLOUT) -> list[Node]:
        return [node for node in self.store.nodes(self.record.id) if node.role is role]

    def whole(self) -> list[tuple[Node, ...]]:
        ready = [node for node in self.nodes() if node.status is NodeStatus.READY]
        return [one for one in replicas(ready) if len(one) == one[0].gang == 2]

    def step(self) -> int:
        view = self.store.view(self.record.id)
        return -1 if view is None else view.version

    def generated(self, node: Node) -> int:
        view = self.store.view(self.record.id)
        assert view is not None
        return next((one.generated_tokens for one in view.nodes if one.node_id == node.id), 0)

    def pid(self, node: Node) -> int:
        pid = NodeDir(self._folder / "nodes" / node.id).pid()
        assert pid is not None
        return pid

    def processes(self) -> list[psutil.Process]:
        """Return every process that works in a node's folder, engines included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(str(self._folder)) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[WideRun]:
    run = WideRun(tmp_path)
    yield run
    run.store.close()
    for process in run.processes():
        process.kill()


def test_a_replica_that_loses_a_machine_goes_as_a_whole_and_is_replaced(run: WideRun) -> None:
    run.until(lambda: len(run.whole()) == 2 and run.step() >= 2, "steps of two replicas")
    (head, member), kept = run.whole()
    run.until(lambda: run.generated(head) > 0, "what this replica generated: the other one may have been there before")
    assert run.generated(member) == 0, "the head alone generates"

    os.kill(run.pid(member), signal.SIGKILL)
    run.until(lambda: not {head.id, member.id} & set(run.provisioner.list_nodes(run.record.id)), "end of the replica")
    (cause,) = {node.cause for node in run.nodes() if node.id == head.id}
    assert cause == BROKEN_GANG
    run.until(lambda: len(run.whole()) == 2, "another replica")
    assert kept in [tuple(node for node in one) for one in run.whole()], "the other one works on"
    before = run.step()
    run.until(lambda: run.step() >= before + 3, "steps of two replicas again")
    assert {node.id for node in run.nodes() if node.status in LIVE} == {one.id for pair in run.whole() for one in pair}

    run.controller.stop("the test has seen enough")
    run.until(lambda: run.controller.reconcile_once().state in ENDED, "end of the run")
    assert run.provisioner.list_nodes(run.record.id) == () and run.processes() == []
