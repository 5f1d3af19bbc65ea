"""The command line in this process, on a store of its own, and a run in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hexcloud import wiring
from hexcloud.adapters.store import SqliteStore
from hexcloud.cli import main
from hexcloud.controller.report import baselines_event
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeStatus, RunId, node_id
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.messages import NodeView, RunPhase, RunView
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.workload import Workload


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str) -> Said:
        code = main(list(arguments))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def run(home: Path) -> RunRecord:
    model = ModelSpec(
        name="tiny",
        params=9,
        layers=1,
        hidden=8,
        heads=2,
        kv_heads=1,
        head_dim=4,
        intermediate=16,
        vocab=21,
        source="-",
    )
    folder = home / "runs" / "main-1"
    return RunRecord(
        id=RunId("main-1"),
        spec=RunSpec(steps=100),
        workload=Workload(model=model, prompt_tokens=500, response_tokens=1500, samples_per_step=256),
        policy=Policy(target_samples_per_s=10.0, budget_usd=50.0),
        state=RunState.RUNNING,
        created_wall_s=1000.0,
        clock_origin_run_s=1000.0,
        clock_origin_wall_s=1000.0,
        clock_scale=25.0,
        run_dir=str(folder),
        output=str(folder / "output"),
    )


@pytest.fixture
def store(home: Path, run: RunRecord) -> Iterator[SqliteStore]:
    """Return a store that holds the run after its third step, controlled by nobody."""
    store = SqliteStore(home / "hexcloud.db")
    wiring.run_dir(run).create()
    node = Node(
        id=node_id(run.id, SlotName("rollout-1"), 1),
        run_id=run.id,
        slot=SlotName("rollout-1"),
        attempt=1,
        role=Role.ROLLOUT,
        offer_id=OfferId("nebius/eu-north1/-/gpu-h100-sxm_1gpu-16vcpu-200gb/spot"),
        status=NodeStatus.READY,
        requested_at_s=1000.0,
    )
    store.save_run(run)
    store.save_node(node)
    rivals = (BaselineRow(name="only aws", usd_per_hour=20.0), BaselineRow(name="only gcp", usd_per_hour=None))
    store.add_event(run.id, baselines_event(rivals, 16.0, at_s=1000.0, wall_s=1000.0))
    fields: dict[str, str | float | int | bool | None] = {
        "trigger": "start",
        "verdict": "moved",
        "reason": "no fleet yet",
        "usd_per_hour_before": 0.0,
        "usd_per_hour_after": 15.0,
    }
    store.add_event(run.id, Event(at_s=1025.0, wall_s=1001.0, kind="replan", text="start: moved", fields=fields))
    entry = LedgerEntry(node_id=node.id, kind=CostKind.COMPUTE, from_s=1000.0, to_s=2000.0, usd_per_hour=15.0, usd=4.25)
    store.add_ledger(run.id, (entry,))
    store.save_view(run.id, view_of(run, node))
    yield store
    store.close()


def view_of(run: RunRecord, node: Node) -> RunView:
    return RunView(
        run_id=run.id,
        phase=RunPhase.TRAINING,
        epoch=0,
        version=3,
        steps=100,
        trained_samples=768,
        dropped_samples=8,
        first_step_at_s=1010.0,
        last_step_at_s=1013.0,
        staleness_histogram={0: 256, 1: 512},
        reward=0.4,
        samples_per_wall_s=250.0,
        overlap_share=0.9,
        trainer_wait_s=0.1,
        outstanding=512,
        checkpoint_version=0,
        accuracy_before=0.31,
        nodes=(
            NodeView(
                node_id=node.id, role=Role.ROLLOUT, silent_s=0.2, version=3, running=7, slots=8, tokens_per_s=1234.0
            ),
        ),
    )
