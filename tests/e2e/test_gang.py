"""A trainer of two machines with real processes: a rank is killed, and later a machine is taken with notice."""

import hashlib
import json
import secrets
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.metrics import StepRow
from hexcloud.domain.plan import Role
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.checkpoint import Counters, save_checkpoint
from hexcloud.runtime.trainer_ranks import Ranks
from tests.e2e.test_local_run import BATCH, CHECKPOINT_EVERY, ETA, RUN, LocalRun, runs
from tests.runtime.training import ALONE, small_model, state_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MEMBER = "trainer-1"
WAIT_S = 240


class GangRun(LocalRun):
    changes: ClassVar[dict[str, object]] = {"gang": 2}

    def start_member(self) -> None:
        """Start a second machine of the trainer: it has a token of its own and not the controller's."""
        directory, token = self._directory / MEMBER, secrets.token_hex(16)
        directory.mkdir()
        spec = NodeSpec.model_validate_json((self._directory / "trainer" / "node.json").read_text())
        spec = spec.model_copy(update={"node_id": NodeId(f"{RUN}.{MEMBER}.0")})
        (directory / "node.json").write_text(spec.model_dump_json())
        environment = {name: value for name, value in self._environments["trainer"].items() if "CONTROLLER" not in name}
        self._environments[MEMBER] = environment | {"HEXCLOUD_NODE_TOKEN": token}
        self.again(MEMBER, Role.TRAINER)
        self._admissions[spec.node_id] = hashlib.sha256(token.encode()).hexdigest(), Role.TRAINER
        self.until(self.readmit, WAIT_S, "admission of the member")

    def rows(self) -> list[StepRow]:
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [StepRow.model_validate(json.loads(line)) for line in lines]

    def member_rank(self) -> psutil.Process:
        """The training process on the member."""
        children = psutil.Process(self.nodes[MEMBER].pid).children(recursive=True)
        return next(one for one in children if runs(one, "hexcloud.runtime.trainer"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[GangRun]:
    run = GangRun(tmp_path, steps=100_000)
    state = state_of(small_model(), TrainingSpec())  # it spares the run its warm start
    counters = Counters(epoch=0, version=0, trained_samples=0, accuracy_before=0.0)
    save_checkpoint(run.run_dir, counters, state, Ranks(0, ALONE))
    run.start("trainer", Role.TRAINER, samples_per_s=400.0)
    run.start_member()
    run.start("rollout-a", Role.ROLLOUT, samples_per_s=200.0)
    yield run
    run.close()


def test_a_gang_survives_a_killed_rank_and_goes_on_smaller_when_a_machine_is_taken(run: GangRun) -> None:
    run.until(lambda: run.watch().version >= CHECKPOINT_EVERY + 3, WAIT_S, "steps of two ranks")
    assert {row.ranks for row in run.rows()} == {2}
    rank = run.member_rank()
    environment = rank.environ()
    assert not {name for name in environment if name.startswith("HEXCLOUD_") and name.endswith(("TOKEN", "SECRET"))}

    rank.send_signal(signal.SIGKILL)
    run.until(lambda: run.watch().epoch == 2, WAIT_S, "a new beginning from the checkpoint")
    resumed_at = run.watch().version
    assert resumed_at >= CHECKPOINT_EVERY
    run.until(lambda: run.watch().version >= resumed_at + 3, WAIT_S, "steps of two ranks again")
    assert run.rows()[-1].ranks == 2 and run.member_rank().pid != rank.pid

    run.nodes[MEMBER].terminate()
    run.until(lambda: run.nodes[MEMBER].poll() is not None, WAIT_S, "the end of the member")
    assert run.nodes[MEMBER].returncode == 0
    left_at = run.watch().version
    run.until(lambda: run.watch().version >= left_at + 3, WAIT_S, "steps of one rank")

    view, rows = run.watch(), run.rows()
    assert view.epoch == 2, "a machine that leaves with notice costs no step"
    assert rows[-1].ranks == 1
    assert max(view.staleness_histogram) <= ETA
    own = [row.version for row in rows if row.epoch == 2]
    assert all(later == earlier + 1 for earlier, later in pairwise(own))
    assert all(row.samples == BATCH for row in rows)
