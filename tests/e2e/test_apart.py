"""A run whose nodes share no folder: they meet in a bucket (S3 over HTTP, by moto) and speak TLS. Real processes."""

import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hexcloud.adapters.certificates import RunAuthority
from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.adapters.metrics import read_steps
from hexcloud.adapters.objects import Bucket
from hexcloud.adapters.run_copy import RunCopy
from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import INTERRUPTION, Pointer, RunPhase, RunView
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.stored import whole_checkpoints
from tests.clouds.metadata_server import metadata_server

RUN = RunId("apart")
ETA, BATCH, CHECKPOINT_EVERY = 4, 64, 10
STEPS, STEP_S = 90, 0.5
"""The head trains no faster than that, on any machine: the run lasts until what happens to it has happened."""
NOTICE_S = 100.0
"""AWS leaves two minutes."""
AWAY = [{"service": "s3", "do": "error", "status": 503, "code": "SlowDown"}]
KEYS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class Machines:
    """Starts nodes, each in a folder that is its own machine, and says what a controller says."""

    def __init__(self, directory: Path, steps: int) -> None:
        self._directory = directory
        self._steps = steps
        self._secret, self._token = secrets.token_hex(16), secrets.token_hex(16)
        self._authority = RunAuthority(secrets.token_bytes(32), time.time())
        self._admissions: dict[NodeId, str] = {}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.own = directory / "controller"
        self.own.mkdir()
        self.bucket = Bucket(f"s3://runs/{RUN}")
        credentials = Credentials(run_id=RUN, secret=self._secret, token=self._token, ca_pem=self._authority.ca_pem)
        self.coordinator = HttpCoordinator(self.own / "coordinator.json", credentials, objects=self.bucket)
        self.copy = RunCopy(self.bucket, self.own, self._token)

    def start(self, name: str, role: Role, **env: str) -> None:
        machine = self._directory / name
        (machine / "0").mkdir(parents=True)
        token, node_id = secrets.token_hex(16), NodeId(f"{RUN}.{name}.0")
        spec = NodeSpec(
            run_id=RUN,
            node_id=node_id,
            slot=SlotName(name),
            role=role,
            task="sort_digits",
            seed=7,
            slots=32,
            samples_per_step=BATCH,
            group_size=8,
            eta=ETA,
            steps=self._steps,
            run_dir="run",
            output="output",
            store=f"s3://runs/{RUN}",
            ca_pem=self._authority.ca_pem,
            notice="aws" if env else "",
            private_env=KEYS,
            tokens_per_sample=2048.0,
            checkpoint_every=CHECKPOINT_EVERY,
            heartbeat_s=0.5,
            emulation=Emulation(clock_scale=1.0, samples_per_s=BATCH / STEP_S) if role is Role.TRAINER else None,
        )
        (machine / "0" / "node.json").write_text(spec.model_dump_json())
        own = {"HEXCLOUD_NODE_TOKEN": token, "HEXCLOUD_RUN_SECRET": self._secret}
        if role is Role.TRAINER:
            own |= {"HEXCLOUD_CONTROLLER_TOKEN": self._token, "HEXCLOUD_TLS_KEY": self._authority.private_key(node_id)}
            (machine / "0" / "coordinator.pem").write_text(self._authority.certificate(node_id))
        with (machine / "log").open("wb") as log:
            self.nodes[name] = subprocess.Popen(
                [sys.executable, "-m", "hexcloud.node", role.value],
                cwd=machine / "0",
                env=os.environ | own | env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if role is Role.ROLLOUT:
            self.admit(name, node_id, token)

    def admit(self, name: str, node_id: NodeId, token: str) -> None:
        self._admissions[node_id] = hashlib.sha256(token.encode()).hexdigest()
        self.until(self.readmit, 120, f"admission of {name}")

    def readmit(self) -> bool:
        """Let the rollout nodes in, as a controller does with every new head."""
        for node_id, digest in self._admissions.items():
            self.coordinator.admit(node_id, digest, Role.ROLLOUT)
        return True

    def lose(self, name: str) -> None:
        """Take a machine away: its processes and its disk."""
        node = self.nodes.pop(name)
        for process in (*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)):
            process.kill()
        node.wait(10)
        shutil.rmtree(self._directory / name / "0")

    def coordinator_address(self) -> str:
        return Pointer.model_validate_json((self.own / "coordinator.json").read_bytes()).url.removeprefix("https://")

    def watch(self) -> RunView:
        self.coordinator.renew(time.time() + 30.0)
        return self.coordinator.view()

    def until(self, is_reached: Callable[[], bool], within_s: float, what: str) -> None:
        gives_up_at = time.monotonic() + within_s
        while time.monotonic() < gives_up_at:
            try:
                if is_reached():
                    return
            except EngineError:
                pass
            time.sleep(0.2)
        pytest.fail(f"{what}: not within {within_s} s\n{self.logs()}")

    def logs(self) -> str:
        return "\n----\n".join(path.read_text(errors="replace")[-3000:] for path in self._directory.glob("*/log"))

    def close(self) -> None:
        for node in self.nodes.values():
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGTERM)
        for node in self.nodes.values():
            node.wait(30)
        self.coordinator.close()


@pytest.fixture
def machines(moto: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[int], Machines]]:
    import boto3

    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="runs")
    for found in client.list_objects_v2(Bucket="runs").get("Contents", []):
        client.delete_object(Bucket="runs", Key=found["Key"])
    client.close()
    started: list[Machines] = []

    def make(steps: int) -> Machines:
        started.append(Machines(tmp_path, steps))
        return started[0]

    yield make
    for run in started:
        run.close()


def test_a_run_goes_on_from_the_store_when_its_head_and_disk_are_lost(
    machines: Callable[[int], Machines], moto: Any
) -> None:
    run = machines(STEPS)
    run.start("head-a", Role.TRAINER)
    run.start("rollout", Role.ROLLOUT)
    run.until(lambda: run.watch().version >= 12, 240, "version 12")

    away_at = run.watch().version
    moto.tell(faults=AWAY)
    run.until(lambda: bool(run.watch().store_trouble), 120, "word of the store's absence")
    run.until(lambda: run.watch().version >= away_at + 5, 120, "steps without a store")
    moto.tell()
    run.until(lambda: not run.watch().store_trouble, 120, "word of the store's return")
    run.until(lambda: run.watch().checkpoint_version >= 10, 120, "a checkpoint in the store")

    view = run.watch()
    head = run.coordinator_address()
    assert head in {link.target for link in view.links}, "the rollout node measured its link to the head's one port"
    run.lose("head-a")
    lost_at = time.monotonic()
    run.start("head-b", Role.TRAINER)
    run.until(lambda: run.readmit() and run.watch().epoch > view.epoch, 120, "a new head")
    run.until(lambda: run.watch().first_step_at_s is not None, 120, "its first step")
    back_s = time.monotonic() - lost_at
    resumed = run.watch()
    assert resumed.head == f"{RUN}.head-b.0"
    run.until(lambda: run.watch().phase is RunPhase.DONE, 240, "the end of the run")
    view = run.watch()
    assert view.version == STEPS and max(view.staleness_histogram) <= ETA
    assert back_s < 120

    run.copy.bring_metrics()
    assert run.copy.bring_output(run.own / "output")
    steps = read_steps(run.own / "metrics.jsonl")
    assert {step.version for step in steps} == set(range(1, STEPS + 1))
    first_again = next(step.version for step in steps if step.epoch > 0)
    assert first_again >= away_at - CHECKPOINT_EVERY
    assert (run.own / "output" / "model.safetensors").stat().st_size > 100_000
    run.coordinator.stop("done")
    run.until(lambda: all(node.poll() is not None for node in run.nodes.values()), 40, "the end of all processes")
    assert [node.returncode for node in run.nodes.values()] == [0, 0]


def test_a_head_that_is_taken_away_leaves_its_last_step_in_the_store(
    machines: Callable[[int], Machines], moto: Any
) -> None:
    with metadata_server() as metadata:
        run = machines(100_000)
        run.start("head-a", Role.TRAINER, AWS_EC2_METADATA_SERVICE_ENDPOINT=f"http://{metadata.host}")
        run.start("rollout", Role.ROLLOUT)
        run.until(lambda: run.watch().version >= 13, 240, "version 13")
        before = run.watch().version
        moto.tell(faults=AWAY)  # the head cannot put its last step away, and so not end, before we have looked
        ends_at_s = time.time() + NOTICE_S
        metadata.interrupt_aws(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends_at_s)))
        run.until(lambda: is_interrupted(run.watch()), NOTICE_S, "the controller's hearing of it")
        assert run.nodes["head-a"].poll() is None
        moto.tell()
        run.until(lambda: run.nodes["head-a"].poll() is not None, ends_at_s - time.time(), "the end within its notice")
        assert run.nodes["head-a"].returncode == 0
        assert max(found.version for found in whole_checkpoints(run.bucket.list("checkpoints"))) >= before


def is_interrupted(view: RunView) -> bool:
    return any(node.notice is not None and node.notice.cause == INTERRUPTION for node in view.nodes)
