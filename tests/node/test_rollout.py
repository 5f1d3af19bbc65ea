"""One rollout node as a real process, with its real engine, against a coordinator in the test."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hexcloud.adapters.engines.sglang_home import CPU_PLATFORM, SGLANG_PYTHON
from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.messages import StepReport
from hexcloud.domain.plan import Role
from hexcloud.node.address import SKY_IPS
from hexcloud.node.identity import HOST
from hexcloud.node.trainer import begin_copies
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import write_weights

SECRETS = {"HEXCLOUD_NODE_TOKEN": "node-token", "HEXCLOUD_RUN_SECRET": "run-secret-word"}


def publish_first_weights(coordinator: Coordinator, run_dir: Path) -> None:
    model = build_model(TASKS["sort_digits"], seed=0)
    file = write_weights(run_dir / "published", model.state_dict(), config_of(model))
    coordinator.publish(StepReport(epoch=0, version=0, path=str(file.path), sha256=file.sha256, size=file.size))


def lines(home: Path, event: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (home / "log").read_text().splitlines() if line.startswith("{")]
    return [one for one in found if one.get("event") == event]


async def until(is_reached: Callable[[], bool], within_s: float = 120.0) -> None:
    """Wait for what takes some seconds; a busy machine may take many for a process that imports torch."""
    async with asyncio.timeout(within_s):
        while not is_reached():  # noqa: ASYNC110 - there is no event for what a test waits for
            await asyncio.sleep(0.02)


def begin_node(home: Path) -> "subprocess.Popen[bytes]":
    """Start a rollout node in its folder, in a session of its own; it logs to `log`."""
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "hexcloud.node", "rollout"],
            cwd=home,
            env=os.environ | SECRETS,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def test_a_node_works_outlives_its_engine_and_says_its_last_words(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    home = tmp_path / "node"
    home.mkdir()
    slow = Emulation(clock_scale=60, samples_per_s=8)  # nobody trains: at full speed the node would soon have no work
    spec = make_spec(Role.ROLLOUT).model_copy(update={"emulation": slow})
    (home / "node.json").write_text(spec.model_dump_json())
    publish_first_weights(coordinator, tmp_path)
    node = begin_node(home)

    def engines() -> list[psutil.Process]:
        return psutil.Process(node.pid).children()

    async def scene() -> None:
        async with serving(coordinator, "run-secret-word"):
            await until(lambda: coordinator.view().outstanding > 0)
            engines()[0].kill()
            await until(lambda: (home / "log").read_text().count("engine_start") == 2)
            await until(lambda: coordinator.view().nodes[0].running == 0)
            await until(lambda: coordinator.view().nodes[0].running == spec.slots)

            last = engines()
            os.killpg(node.pid, signal.SIGTERM)
            await until(lambda: node.poll() is not None, within_s=60)  # 2 s are promised; a busy machine gets more
            assert node.returncode == 0
            assert not any(engine.is_running() for engine in last)
            assert "left_without_last_words" not in (home / "log").read_text()

    try:
        asyncio.run(scene())
    finally:
        node.kill()
        node.wait()
    assert not any(secret in (home / "log").read_text() for secret in SECRETS.values())


HASTY = """
import sys, threading, time
from pathlib import Path
from hexcloud.runtime import replica_line

replica_line.BEAT_S, replica_line.AGAIN_S = 0.2, 0.2
proven = replica_line.answer

def answer(caller, key):
    line, word = proven(caller, key)
    Path("met").touch()
    return line, word

def lose_patience():
    while not Path("../all-have-met").exists():
        time.sleep(0.05)
    replica_line.GONE_S, replica_line.SILENT_S = 3.0, 2.0

replica_line.answer = answer
threading.Thread(target=lose_patience, daemon=True).start()
from hexcloud.node.rollout import main
sys.exit(main())
"""
"""A rollout node that has no time: once it is told that all have met, a machine that is away for 3 s is gone. Until
then it waits as long as a busy machine takes to start the others."""


def begin_replica(nodes: Path, spec: NodeSpec) -> "list[subprocess.Popen[bytes]]":
    """Start both machines of a replica. No weights come, so SGLang never serves: what asks for its version suffices."""
    python = nodes / "sglang-python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'version': '0.5.23', 'platforms': [CPU_PLATFORM]})}'\n")
    python.chmod(0o755)
    told = {SKY_IPS: "127.0.0.1\n127.0.0.1", HOST: "127.0.0.1", SGLANG_PYTHON: str(python)}
    machines = []
    for rank in (0, 1):
        home = nodes / str(rank)
        home.mkdir()
        own = {"rank": rank, "slots": spec.slots if rank == 0 else 0}
        (home / "node.json").write_text(spec.model_copy(update=own).model_dump_json())
        with (home / "log").open("wb") as log:
            argv = [sys.executable, "-c", HASTY]
            machines.append(subprocess.Popen(argv, cwd=home, env=os.environ | SECRETS | told, stdout=log, stderr=log))
    return machines


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "blow"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (0, signal.SIGSTOP)])
def test_a_machine_whose_replica_is_not_whole_any_more_ends_itself(
    make_spec: Callable[[Role], NodeSpec], tmp_path: Path, victim: int, blow: signal.Signals
) -> None:
    """Nobody else does: there is no coordinator here, and the spend lease lasts for two minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    rented = {"engine": EngineKind.SGLANG, "emulation": None, "gang": 2, "head": "rollout-0", "replica_port": port}
    machines = begin_replica(tmp_path, make_spec(Role.ROLLOUT).model_copy(update=rented))
    try:
        asyncio.run(until((tmp_path / "0" / "met").exists))
        (tmp_path / "all-have-met").touch()
        time.sleep(6.0)
        assert [machine.poll() for machine in machines] == [None, None], "as long as both are there they stay"
        machines[victim].send_signal(blow)
        assert machines[1 - victim].wait(90.0) == 1, (tmp_path / str(1 - victim) / "log").read_text()
    finally:
        for machine in machines:
            machine.kill()
            machine.wait()


@pytest.mark.slow
def test_a_node_takes_weights_from_the_store_of_its_region_and_the_head_leaves_none_there(
    make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    home, store = tmp_path / "node", tmp_path / "store"
    home.mkdir()
    spec = make_spec(Role.ROLLOUT).model_copy(update={"region": "aws/far"})
    (home / "node.json").write_text(spec.model_dump_json())
    head = make_spec(Role.TRAINER).model_copy(update={"weights_stores": {"aws/far": f"file://{store}"}})
    access = AccessList("controller-token", {})
    access.admit(spec.node_id, token_sha256(SECRETS["HEXCLOUD_NODE_TOKEN"]))
    coordinator = Coordinator(head, TASKS[head.task.name], access)
    publish_first_weights(coordinator, tmp_path)

    async def scene() -> None:
        async with serving(coordinator, "run-secret-word"):
            begin_copies(coordinator)
            await until(lambda: len(lines(home, "weights_loaded")) > 0)
            size = (tmp_path / "published" / "model.safetensors").stat().st_size
            assert coordinator.weights.copies.sent_bytes == {"aws/far": size}
            assert coordinator.sent_bytes.total() == 0
            await coordinator.weights.copies.close()
            assert not [path for path in store.rglob("*") if path.is_file()]

    node = begin_node(home)
    try:
        asyncio.run(scene())
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait(10)
