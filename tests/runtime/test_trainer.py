"""The trainer as a real process against a real coordinator; the test is the rollout node."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from transformers import Qwen2ForCausalLM

from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.lease import Lease
from hexcloud.domain.messages import LeaseGrant, LeaseRequest, Register, StopRequest, Submission
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.sample import Sample
from hexcloud.domain.training import TrainingSpec
from hexcloud.domain.world import World
from hexcloud.runtime.checkpoint import Counters, save_checkpoint
from hexcloud.runtime.checkpoint_index import newest_checkpoint, next_epoch
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.coordinator_start import Start
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer import EXIT_TERMINATED
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_ranks import Ranks
from tests.runtime.training import ALONE, state_of

STEPS, BATCH, GROUP, RATE = 5, 16, 4, 64.0
ENDS_WITHIN_S = 120.0
"""What takes a few seconds where nothing else runs, the start of a process that imports torch included."""
WORKER = NodeId("r.rollout-0.0")
RANDOM = random.Random(0)


class Rig:
    """One coordinator, and what is needed to start trainers and to be a rollout node."""

    def __init__(self, folder: Path, coordinator: Coordinator, url: str) -> None:
        self.folder = folder
        self.coordinator = coordinator
        self.url = url
        self.http = httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer worker"}, trust_env=False)

    async def start_trainer(self, *flags: str) -> asyncio.subprocess.Process:
        argv = [sys.executable, "-m", "hexcloud.runtime.trainer", "--url", self.url, *flags]
        environment = {**os.environ, "HEXCLOUD_NODE_TOKEN": "trainer", "OMP_NUM_THREADS": "1"}
        return await asyncio.create_subprocess_exec(*argv, cwd=self.folder, env=environment)

    async def until_served(self, path: str) -> None:
        """Ask, as a rollout node does, until there is no 404."""
        while (await self.http.get(path)).is_client_error:  # noqa: ASYNC110 - nobody tells a node
            await asyncio.sleep(0.1)

    async def generate_until(self, is_enough: Callable[[], bool]) -> None:
        """Be a rollout node: right answers now and then, with made-up logprobs."""
        register = Register(node_id=WORKER, role=Role.ROLLOUT, slots=BATCH, address="127.0.0.1:1")
        await self.http.post("/register", content=register.model_dump_json())
        while not is_enough():
            view = self.coordinator.view()
            ask = LeaseRequest(node_id=WORKER, epoch=view.epoch, version=view.version, want=BATCH)
            answer = await self.http.post("/leases", content=ask.model_dump_json())
            leases = LeaseGrant.model_validate_json(answer.content).leases
            samples = tuple(_sample(lease) for lease in leases)
            if samples:
                done = Submission(node_id=WORKER, samples=samples)
                await self.http.post("/samples", content=done.model_dump_json())
            await asyncio.sleep(0.02)


def _sample(lease: Lease) -> Sample:
    is_right = lease.index == 0 or RANDOM.random() < 0.3
    answer = SORT_DIGITS.encode(lease.answer)
    tokens = (*answer, 2) if is_right else (*reversed(answer), 2)
    return Sample(
        lease=lease.id,
        attempt=lease.attempt,
        group=lease.group,
        index=lease.index,
        epoch=lease.epoch,
        prompt_ids=lease.prompt_ids,
        tokens=tokens,
        logprobs=(-3.0,) * len(tokens),
        versions=(lease.version,) * len(tokens),
        reward=float(is_right and lease.index != GROUP - 1),
    )


def spec_of(folder: Path) -> NodeSpec:
    return NodeSpec(
        run_id=RunId("r"),
        node_id=NodeId("r.trainer-0.0"),
        slot=SlotName("trainer-0"),
        role=Role.TRAINER,
        task="sort_digits",
        seed=0,
        slots=0,
        samples_per_step=BATCH,
        group_size=GROUP,
        eta=2,
        steps=STEPS,
        run_dir=str(folder / "run"),
        output=str(folder / "output"),
        tokens_per_sample=16,
        checkpoint_every=2,
        spend_lease_s=600,
        emulation=Emulation(clock_scale=1, samples_per_s=RATE),
    )


def be_warm(run_dir: Path) -> None:
    """Leave a checkpoint of version 0: it spares the process its warm start."""
    state = state_of(build_model(SORT_DIGITS, seed=0), TrainingSpec())
    counters = Counters(epoch=0, version=0, trained_samples=0, accuracy_before=0.25)
    save_checkpoint(run_dir, counters, state, Ranks(0, ALONE))


@asynccontextmanager
async def rig(folder: Path, start: Start) -> AsyncIterator[Rig]:
    spec = spec_of(folder)
    (folder / "run").mkdir(exist_ok=True)
    (folder / "node.json").write_text(spec.model_dump_json())
    access = AccessList("controller", {spec.node_id: token_sha256("trainer")})
    access.admit(WORKER, token_sha256("worker"))
    coordinator = Coordinator(spec, SORT_DIGITS, access, start)
    async with serving(coordinator, "secret") as url:
        made = Rig(folder, coordinator, url)
        async with made.http:
            yield made


def metrics_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_trains_to_its_end_and_leaves_a_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        be_warm(tmp_path / "run")
        async with rig(tmp_path, Start(epoch=1, version=0)) as run:
            trainer = await run.start_trainer("--epoch", "1")
            await run.generate_until(lambda: run.coordinator.is_finished)
            assert await asyncio.wait_for(trainer.wait(), ENDS_WITHIN_S) == 0
            view = run.coordinator.view()
            assert (view.version, view.trained_samples) == (STEPS, STEPS * BATCH)
            assert view.accuracy_before == 0.25 and view.accuracy_after is not None
            assert view.checkpoint_version == 4

    asyncio.run(scenario())
    rows = metrics_of(tmp_path)
    assert [row["version"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(row["grad_norm"] > 0 and row["busy_s"] >= 0.9 * BATCH / RATE for row in rows)
    assert rows[-1]["wall_s"] - rows[0]["wall_s"] >= (STEPS - 1) * BATCH / RATE - 0.05
    newest = newest_checkpoint(tmp_path / "run")
    assert newest is not None and (newest.epoch, newest.version) == (1, STEPS)
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.json",
    ]
    Qwen2ForCausalLM.from_pretrained(tmp_path / "output")
    assert list((tmp_path / "run" / "tensorboard").iterdir())


@pytest.mark.slow
def test_a_killed_trainer_goes_on_from_its_checkpoint_in_a_later_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        be_warm(tmp_path / "run")
        async with rig(tmp_path, Start(epoch=1, version=0)) as run:
            trainer = await run.start_trainer("--epoch", "1")
            await run.generate_until(lambda: run.coordinator.view().version >= 3)
            trainer.kill()
            assert await trainer.wait() == -signal.SIGKILL
            trainer = await run.start_trainer()
            await run.generate_until(lambda: run.coordinator.epoch == 2)
            assert run.coordinator.view().version >= 2  # the checkpoint is of every second version
            trainer.kill()
            await trainer.wait()

    asyncio.run(scenario())


def test_sigterm_while_waiting_leaves_a_checkpoint_of_the_published_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        be_warm(tmp_path / "run")
        async with rig(tmp_path, Start(epoch=1, version=0)) as run:
            trainer = await run.start_trainer()
            await run.generate_until(lambda: run.coordinator.view().version >= 1)
            trainer.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(trainer.wait(), ENDS_WITHIN_S) == EXIT_TERMINATED
            newest = newest_checkpoint(tmp_path / "run")
            assert newest is not None and (newest.epoch, newest.version) == (1, run.coordinator.view().version)
            assert not run.coordinator.is_finished

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_stopped_run_still_leaves_its_model_and_checkpoint(tmp_path: Path) -> None:
    async def scenario() -> None:
        be_warm(tmp_path / "run")
        async with rig(tmp_path, Start(epoch=1, version=0)) as run:
            trainer = await run.start_trainer()
            await run.generate_until(lambda: run.coordinator.view().version >= 1)
            run.coordinator.stop(StopRequest(reason="budget"))
            assert await asyncio.wait_for(trainer.wait(), ENDS_WITHIN_S) == 0
            newest = newest_checkpoint(tmp_path / "run")
            assert newest is not None and newest.version == run.coordinator.view().version < STEPS
            assert run.coordinator.is_finished
            assert (tmp_path / "output" / "model.safetensors").exists()

    asyncio.run(scenario())


@pytest.mark.slow
def test_another_rank_than_0_says_that_it_is_up_before_it_meets_anybody(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "node.json").write_text(spec_of(tmp_path).model_dump_json())
        world = World(generation=3, nodes=(NodeId("another.0"), NodeId("r.trainer-0.0")), store="127.0.0.1:1")
        argv = [sys.executable, "-m", "hexcloud.runtime.trainer", "--world", world.model_dump_json(), "--place", "1"]
        rank = await asyncio.create_subprocess_exec(*argv, cwd=tmp_path)
        async with asyncio.timeout(ENDS_WITHIN_S):
            while not (tmp_path / world.sign_of_life(1)).exists():  # noqa: ASYNC110 - a file comes
                await asyncio.sleep(0.05)
        rank.kill()
        await rank.wait()

    asyncio.run(scenario())


@pytest.mark.slow
def test_an_epoch_that_a_checkpoint_already_had_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        be_warm(tmp_path / "run")
        async with rig(tmp_path, Start()) as run:
            trainer = await run.start_trainer("--epoch", "0")
            assert await asyncio.wait_for(trainer.wait(), ENDS_WITHIN_S) == 1
            assert run.coordinator.view().version == 0

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_new_run_warms_up_before_its_first_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, Start()) as run:
            trainer = await run.start_trainer()
            await run.generate_until(lambda: run.coordinator.view().version >= 1)
            accuracy = run.coordinator.view().accuracy_before
            assert accuracy is not None and accuracy > 0.2
            trainer.kill()
            await trainer.wait()

    asyncio.run(scenario())


def test_a_run_goes_on_past_a_torn_checkpoint_and_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        run_dir = tmp_path / "run"
        be_warm(run_dir)
        torn = run_dir / "checkpoints" / "1-0"
        shutil.copytree(run_dir / "checkpoints" / "0-0", torn)
        (torn / "counters.json").write_text("")
        async with rig(tmp_path, Start(epoch=next_epoch(run_dir), version=0)) as run:
            assert run.coordinator.epoch == 2
            trainer = await run.start_trainer()
            async with asyncio.timeout(ENDS_WITHIN_S):
                await run.until_served("/weights/2/0")
            (run_dir / "weights" / "2-0" / "model.safetensors").write_bytes(b"torn")
            assert (await run.http.get("/weights/2/0")).status_code == 404
            async with asyncio.timeout(ENDS_WITHIN_S):
                await run.until_served("/weights/2/0")
            await run.generate_until(lambda: run.coordinator.view().version >= 1)
            trainer.kill()
            await trainer.wait()

    asyncio.run(scenario())
