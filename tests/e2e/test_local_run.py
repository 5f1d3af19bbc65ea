"""A whole run with real processes: one trainer node, two rollout nodes, and a few lines in the controller's place."""

import hashlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.plan import Role, SlotName

ETA = 4
BATCH = 64
CHECKPOINT_EVERY = 10
SPEND_LEASE_S = 60.0
"""While somebody watches: a look at a busy machine may take long."""
LAST_LEASE_S = 8.0
PATIENCE_S = 240.0
"""For what takes some ten seconds on a machine that has nothing else to do."""
RUN = RunId("e2e")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class LocalRun:
    """Starts nodes as a provisioner would, and says the few things that a controller says."""

    changes: ClassVar[dict[str, object]] = {}
    """What a kind of run has otherwise in its nodes' specifications."""

    spend_lease_s = SPEND_LEASE_S

    def __init__(self, directory: Path, steps: int) -> None:
        self._directory = directory
        self._steps = steps
        self._run_secret = secrets.token_hex(16)
        self._controller_token = secrets.token_hex(16)
        self.run_dir = directory / "run"
        self.output = directory / "output"
        self.run_dir.mkdir()
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.processes: set[psutil.Process] = set()
        self._busy: set[str] = set()
        self._environments: dict[str, dict[str, str]] = {}
        self._admissions: dict[NodeId, tuple[str, Role]] = {}
        credentials = Credentials(run_id=RUN, secret=self._run_secret, token=self._controller_token)
        self.coordinator = HttpCoordinator(self.run_dir / "coordinator.json", credentials)

    def start(self, name: str, role: Role, samples_per_s: float) -> None:
        directory = self._directory / name
        directory.mkdir()
        token = secrets.token_hex(16)
        spec = NodeSpec(
            run_id=RUN,
            node_id=NodeId(f"{RUN}.{name}.0"),
            slot=SlotName(name),
            role=role,
            task="sort_digits",
            seed=7,
            slots=32,
            samples_per_step=BATCH,
            group_size=8,
            eta=ETA,
            steps=self._steps,
            run_dir=str(self.run_dir),
            output=str(self.output),
            tokens_per_sample=2048.0,
            checkpoint_every=CHECKPOINT_EVERY,
            spend_lease_s=60.0,
            heartbeat_s=0.5,
            emulation=Emulation(
                clock_scale=60.0, samples_per_s=samples_per_s, link_bytes_per_s=4e6, link_latency_ms=2.0
            ),
        )
        (directory / "node.json").write_text(spec.model_copy(update=self.changes).model_dump_json())
        env = {"HEXCLOUD_NODE_TOKEN": token, "HEXCLOUD_RUN_SECRET": self._run_secret}
        if role is Role.TRAINER:
            env["HEXCLOUD_CONTROLLER_TOKEN"] = self._controller_token
        self._environments[name] = env
        self.again(name, role)
        if role is Role.ROLLOUT:
            self._admissions[spec.node_id] = hashlib.sha256(token.encode()).hexdigest(), role
            self.until(self.readmit, PATIENCE_S, f"admission of {name}")

    def again(self, name: str, role: Role) -> None:
        """Start a node's program in its directory, for the first time or once more."""
        directory = self._directory / name
        with (directory / "log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                [sys.executable, "-m", "hexcloud.node", role.value],
                cwd=directory,
                env=os.environ | self._environments[name],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def readmit(self) -> bool:
        """Let the rollout nodes in, as a controller does with every new head."""
        for node_id, (digest, role) in self._admissions.items():
            self.coordinator.admit(node_id, digest, role)
        return True

    def watch(self) -> RunView:
        """Renew the spend lease, note all processes there are, and look at the run."""
        for node in self.nodes.values():
            if node.poll() is None:
                parent = psutil.Process(node.pid)
                self.processes |= {parent, *parent.children(recursive=True)}
        self.coordinator.renew(time.time() + self.spend_lease_s)
        return self.coordinator.view()

    def busy(self) -> set[str]:
        """Nodes that were seen generating, ever: one that loads weights at this moment is at work, too."""
        self._busy |= {str(node.node_id) for node in self.watch().nodes if node.running}
        return self._busy

    def until(self, is_reached: Callable[[], bool], within_s: float, what: str) -> None:
        gives_up_at = time.monotonic() + within_s
        while time.monotonic() < gives_up_at:
            try:
                if is_reached():
                    return
            except EngineError:
                pass
            time.sleep(0.3)
        pytest.fail(f"{what}: not within {within_s} s\n{self.logs()}")

    def child(self, module: str) -> psutil.Process:
        """The process of the run that runs a module."""
        return next(one for one in self.living() if runs(one, module))

    def living(self) -> list[psutil.Process]:
        """All processes of the run, by pid and start time, that still live."""
        for node in self.nodes.values():
            node.poll()
        return [one for one in self.processes if lives(one)]

    def logs(self) -> str:
        tails = [path.read_text(errors="replace")[-3000:] for path in sorted(self._directory.glob("*/log"))]
        return "\n----\n".join(tails)

    def close(self) -> None:
        for process in self.living():
            process.kill()
        for node in self.nodes.values():
            node.wait(60)
        self.coordinator.close()


def lives(process: psutil.Process) -> bool:
    """It may end, and its parent may take its status, while it is looked at."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def local_run(tmp_path: Path) -> Iterator[Callable[[int], LocalRun]]:
    runs: list[LocalRun] = []

    def make(steps: int) -> LocalRun:
        runs.append(LocalRun(tmp_path, steps))
        run = runs[-1]
        run.start("trainer", Role.TRAINER, samples_per_s=200.0)
        run.start("rollout-a", Role.ROLLOUT, samples_per_s=100.0)
        run.start("rollout-b", Role.ROLLOUT, samples_per_s=100.0)
        return run

    yield make
    for run in runs:
        run.close()


def test_a_run_survives_its_losses_and_ends_when_nobody_watches(
    local_run: Callable[[int], LocalRun],
) -> None:
    run = local_run(100_000)
    run.until(lambda: run.watch().version >= 12, PATIENCE_S, "version 12 with two rollout nodes")
    run.until(lambda: run.busy() >= {"e2e.rollout-a.0", "e2e.rollout-b.0"}, PATIENCE_S, "both rollout nodes at work")

    os.killpg(run.nodes["rollout-b"].pid, signal.SIGKILL)
    run.until(lambda: run.watch().version >= 40, PATIENCE_S, "version 40 with one rollout node")

    run.child("hexcloud.runtime.trainer").kill()
    run.until(lambda: run.watch().epoch == 1, PATIENCE_S, "a new trainer from a checkpoint")
    resumed_at = run.watch().version
    assert resumed_at >= 40 - CHECKPOINT_EVERY
    run.until(lambda: run.watch().version >= resumed_at + 5, PATIENCE_S, "steps of the new trainer")

    view = run.watch()
    assert view.phase is RunPhase.TRAINING
    assert max(view.staleness_histogram) <= ETA
    assert view.links, "no link was measured"
    assert run.nodes["trainer"].poll() is None
    assert run.nodes["rollout-a"].poll() is None

    run.coordinator.renew(time.time() + LAST_LEASE_S)
    # From here on nobody renews the spend lease.
    run.until(lambda: not run.living(), LAST_LEASE_S + 60, "the end of all processes")
    assert run.nodes["trainer"].wait(1) == 0
    assert run.nodes["rollout-a"].wait(1) == 0
    assert list((run.run_dir / "checkpoints").iterdir())


def test_a_finished_run_leaves_its_model_and_no_process(local_run: Callable[[int], LocalRun]) -> None:
    run = local_run(15)
    run.until(lambda: run.watch().phase is RunPhase.DONE, PATIENCE_S, "the end of the run")
    view = run.watch()
    assert view.version == 15
    assert view.trained_samples == 15 * BATCH
    assert sum(view.staleness_histogram.values()) == view.trained_samples
    assert max(view.staleness_histogram) <= ETA
    assert (run.output / "model.safetensors").exists()

    run.coordinator.stop("done")
    run.until(lambda: not run.living(), PATIENCE_S, "the end of all processes")
    assert [node.wait(1) for node in run.nodes.values()] == [0, 0, 0]
