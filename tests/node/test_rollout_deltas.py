"""Deltas on their way: a rollout node as a real process, and versions that a small learning rate really makes."""

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
from hexcloud.domain.messages import DeltaReport, StepReport
from hexcloud.domain.plan import Role
from hexcloud.domain.sample import Group
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_weights import Shelf
from hexcloud.runtime.weights import read_weights
from tests.node.test_rollout import SECRETS, until

LOW_RATE = 2e-9
"""In fp32 a weight of 0.02 moves by one step of its last bit per 2e-9: the toy's fp32 stands for a large model's bf16,
whose last bit is 6e-5 of such a weight, at 1e-5 or so."""
STEPS = 5

pytestmark = pytest.mark.slow


def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer, groups: tuple[Group, ...]) -> None:
    """Take one policy gradient step on what the node really made."""
    loss = torch.zeros(())
    for sample in (sample for group in groups for sample in group.samples):
        ids = torch.tensor([sample.prompt_ids + sample.tokens])
        logits = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1]
        chosen = torch.log_softmax(logits, -1).gather(1, ids[0, len(sample.prompt_ids) :, None])
        loss = loss - (sample.reward - 0.5) * chosen.sum()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def test_at_a_small_learning_rate_a_node_gets_what_changed_and_serves_it_to_the_bit(
    coordinator: Coordinator, make_spec: Callable[[Role], NodeSpec], tmp_path: Path
) -> None:
    home = tmp_path / "node"
    home.mkdir()
    link = Emulation(clock_scale=60, samples_per_s=200, link_bytes_per_s=4e6, link_latency_ms=1.0)
    spec = make_spec(Role.ROLLOUT).model_copy(update={"emulation": link, "region": "aws/far"})
    (home / "node.json").write_text(spec.model_dump_json())
    torch.manual_seed(0)
    model = build_model(TASKS["sort_digits"], seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LOW_RATE, weight_decay=0.0)
    shelf, sizes = Shelf(tmp_path, epoch=0), []

    def publish(version: int) -> StepReport:
        published = shelf.put(model, version)
        file = published.file
        report = StepReport(
            epoch=0, version=version, path=str(file.path), sha256=file.sha256, size=file.size, delta=published.delta
        )
        coordinator.publish(report)
        sizes.append((file.size, published.delta))
        return report

    with (home / "log").open("wb") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "hexcloud.node", "rollout"],
            cwd=home,
            env=os.environ | SECRETS,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def events(name: str) -> list[dict[str, object]]:
        lines = (home / "log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [one for one in found if one.get("event") == name]

    async def scene() -> StepReport:
        async with serving(coordinator, "run-secret-word"):
            report = publish(0)
            for version in range(1, STEPS + 1):
                batch = None
                while not (batch and batch.groups):
                    batch = await coordinator.batch(wait_s=1.0)
                    assert not batch.done and node.poll() is None, (home / "log").read_text()[-3000:]
                await asyncio.to_thread(trained, model, optimizer, batch.groups)
                report = publish(version)
                await until(lambda: len(events("weights_loaded")) > version, within_s=60)  # noqa: B023
            return report

    try:
        last = asyncio.run(asyncio.wait_for(scene(), 150))
        whole, deltas = sizes[-1][0], [delta for _, delta in sizes[1:] if isinstance(delta, DeltaReport)]
        assert len(deltas) == STEPS and max(one.delta.size for one in deltas) < 0.5 * whole
        assert len(events("weights_patched")) >= STEPS - 1, (home / "log").read_text()[-3000:]
        sent = coordinator.sent_bytes[spec.node_id]
        assert sent < 0.7 * (STEPS + 1) * whole, "whole files travelled"
        (held,) = (home / "weights").glob(f"0-{STEPS}-*/model.safetensors")
        read_weights(held, last.sha256)
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait(10)
