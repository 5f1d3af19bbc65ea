"""One run, one plan and one view to store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hexcloud.adapters.store import SqlitePrices, SqliteStore
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, RunId, node_id
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import (
    Allocation,
    ExecutionPlan,
    Forecast,
    Layout,
    Placement,
    Proof,
    Role,
    RolloutColumn,
    RolloutShare,
    Slot,
    SlotName,
    TrainerColumn,
    TrainerShare,
)
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.workload import Workload

OFFER = OfferId("aws/us-east-1/use1-az1/g5.xlarge/spot")


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[SqlitePrices]:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    yield prices
    prices.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "hexcloud.db")
    yield store
    store.close()


@pytest.fixture
def run() -> RunRecord:
    model = ModelSpec(
        name="tiny",
        params=1000,
        layers=2,
        hidden=8,
        heads=2,
        kv_heads=1,
        head_dim=4,
        intermediate=16,
        vocab=21,
        source="-",
    )
    return RunRecord(
        id=RunId("main-1"),
        spec=RunSpec(),
        workload=Workload(model=model),
        policy=Policy(),
        state=RunState.RUNNING,
        created_wall_s=100.0,
        clock_origin_run_s=0.0,
        clock_origin_wall_s=100.0,
        run_dir="/somewhere",
        output="/somewhere/output",
    )


@pytest.fixture
def node(run: RunRecord) -> Node:
    slot = SlotName("rollout-0")
    return Node(
        id=node_id(run.id, slot, 0),
        run_id=run.id,
        slot=slot,
        attempt=0,
        role=Role.ROLLOUT,
        offer_id=OFFER,
        status=NodeStatus.REQUESTED,
        requested_at_s=5.0,
    )


@pytest.fixture
def plan() -> ExecutionPlan:
    rollout = RolloutColumn(offer_id=OFFER, tp=1, replicas=1, batch=8, samples_per_s=1.0, generation_s=30.0)
    trainer = TrainerColumn(offer_id=OFFER, nodes=1, layout=Layout(ranks=1), samples_per_s=1.0, step_s=256.0)
    placement = Placement(
        slots=(
            Slot(name=SlotName("rollout-0"), role=Role.ROLLOUT, offer_id=OFFER, usd_per_hour=0.4, rollout=rollout),
            Slot(name=SlotName("trainer-0"), role=Role.TRAINER, offer_id=OFFER, usd_per_hour=0.4, trainer=trainer),
        )
    )
    return ExecutionPlan(
        placement=placement,
        ranks=(SlotName("trainer-0"),),
        routes=(),
        forecast=Forecast(
            samples_per_s=1.0, tokens_per_s=2048.0, usd_per_hour=0.8, step_s=256.0, staleness=1.0, weight_sync_s=2.0
        ),
        allocation=Allocation(
            rollout=(RolloutShare(column=rollout, count=1, usd_per_hour=0.4),),
            trainer=TrainerShare(column=trainer, usd_per_hour=0.4),
            samples_per_s=1.0,
            rent_usd_per_hour=0.8,
            egress_usd_per_hour=0.0,
            proof=Proof(lower_bound_usd_per_hour=0.8, gap=0.0),
        ),
    )


@pytest.fixture
def view(run: RunRecord) -> RunView:
    return RunView(
        run_id=run.id,
        phase=RunPhase.TRAINING,
        epoch=0,
        version=3,
        steps=10,
        trained_samples=768,
        dropped_samples=0,
        first_step_at_s=110.0,
        last_step_at_s=113.0,
        staleness_histogram={0: 256, 1: 512},
        reward=0.4,
        samples_per_wall_s=256.0,
        overlap_share=0.9,
        trainer_wait_s=0.1,
        outstanding=512,
        checkpoint_version=0,
    )


@pytest.fixture
def entry() -> LedgerEntry:
    return LedgerEntry(
        node_id=NodeId("main-1.rollout-0.0"), kind=CostKind.COMPUTE, from_s=0.0, to_s=3600.0, usd_per_hour=0.4, usd=0.4
    )
