"""Deltas on their way: a real trainer that publishes bf16 at a rate of RL, and a real rollout node that follows it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.messages import WeightsManifest
from hexcloud.domain.plan import Role
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.weights import read_weights
from tests.node.test_rollout import SECRETS, until

RATE = 2e-5
STEPS, STEP_S = 5, 2.0
"""The trainer makes no version before a node, however busy its machine, has had the time to take the one before."""
BATCH = 32

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_at_a_rate_of_rl_a_node_gets_what_changed_of_bf16_weights_and_serves_it_to_the_bit(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    home, head = tmp_path / "node", tmp_path / "head"
    link = Emulation(clock_scale=60, samples_per_s=200, link_bytes_per_s=4e6, link_latency_ms=1.0)
    training = TrainingSpec(precision="bf16", learning_rate=RATE, ramp_steps=1)
    pace = Emulation(clock_scale=60, samples_per_s=BATCH / STEP_S)
    for role, folder, changes in (
        (Role.ROLLOUT, home, {"emulation": link, "region": "aws/far"}),
        (Role.TRAINER, head, {"training": training, "steps": STEPS, "emulation": pace}),
    ):
        folder.mkdir()
        (folder / "node.json").write_text(make_spec(role).model_copy(update=changes).model_dump_json())

    def events(name: str) -> list[dict[str, object]]:
        lines = (home / "log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [one for one in found if one.get("event") == name]

    processes: list[subprocess.Popen[bytes]] = []

    def start(program: list[str], folder: Path, secrets: dict[str, str]) -> None:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *program],
                cwd=folder,
                env=os.environ | secrets,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.append(process)

    def end_last() -> None:
        process = processes.pop()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def has_trained() -> bool:
        said = "".join((folder / "log").read_text()[-3000:] for folder in (home, head))
        assert all(process.poll() is None for process in processes), said
        return coordinator.view().version >= STEPS

    async def scene() -> WeightsManifest:
        async with serving(coordinator, "run-secret-word") as url:
            start(["hexcloud.node", "rollout"], home, SECRETS)
            start(["hexcloud.runtime.trainer", "--url", url], head, {"HEXCLOUD_NODE_TOKEN": "head-token"})
            await until(has_trained, within_s=600)
            end_last()
            last = coordinator.weights.latest
            assert last is not None
            await until(lambda: any(one["version"] == last.version for one in events("weights_loaded")))
            return last

    try:
        last = asyncio.run(scene())
        (held,) = (home / "weights").glob(f"0-{last.version}-*/model.safetensors")
        weights = read_weights(held, last.sha256)
        assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
        sizes = [path.stat().st_size for path in (tmp_path / "weights").glob("*.delta")]
        assert len(sizes) >= STEPS and max(sizes) < 0.4 * last.size
        patched = sum(int(str(one["deltas"])) for one in events("weights_patched"))
        assert patched >= STEPS - 2, (home / "log").read_text()[-3000:]
    finally:
        while processes:
            end_last()
