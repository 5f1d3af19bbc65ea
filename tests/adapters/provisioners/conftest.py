"""A node, its offer, and a clock and a trace that the test sets."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud.adapters.markets.trace import Trace, TraceEvent, TraceKind
from hexcloud.adapters.provisioners import processes
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.provisioners.node_dir import NodeDir
from hexcloud.domain.fleet import Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.plan import Role, SlotName

ORIGIN_S = 1000.0


class SetClock:
    """A clock that stands until the test moves it."""

    def __init__(self) -> None:
        self.at_s = ORIGIN_S

    def now_s(self) -> float:
        return self.at_s

    def wall_s(self) -> float:
        return self.at_s

    def sleep(self, wall_s: float) -> None:
        self.at_s += wall_s


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def trace(offer: Offer) -> Trace:
    """Return a trace of the offer's pool: sold out from 5 s to 8 s after the run began, preempted at 10 s and 20 s."""
    pool = offer.id.replace("use1-az1", "*")
    return Trace(
        name="test",
        events=(
            TraceEvent(at_s=10.0, kind=TraceKind.PREEMPT, offer=pool),
            TraceEvent(at_s=20.0, kind=TraceKind.PREEMPT, offer=pool),
            TraceEvent(at_s=5.0, kind=TraceKind.SOLD_OUT, offer=pool),
            TraceEvent(at_s=8.0, kind=TraceKind.BACK, offer=pool),
        ),
    )


@pytest.fixture
def offer() -> Offer:
    return Offer(
        id=offer_id("aws", "us-east-1", "use1-az1", "g5.xlarge", Tenure.SPOT),
        cloud="aws",
        region="us-east-1",
        zone="use1-az1",
        instance_type="g5.xlarge",
        tenure=Tenure.SPOT,
        gpu="A10G",
        gpu_count=1,
        vcpus=4,
        memory_gib=16,
        network_gb_per_s=1.25,
        usd_per_hour=0.4,
        as_of=datetime(2026, 7, 1, tzinfo=UTC),
        source="made up",
    )


@pytest.fixture
def nodes(offer: Offer) -> tuple[Node, ...]:
    """Return three nodes of one pool."""
    run_id = RunId("main-1")
    return tuple(
        Node(
            id=node_id(run_id, SlotName(f"rollout-{number}"), 0),
            run_id=run_id,
            slot=SlotName(f"rollout-{number}"),
            attempt=0,
            role=Role.ROLLOUT,
            offer_id=offer.id,
            status=NodeStatus.REQUESTED,
            requested_at_s=0.0,
        )
        for number in range(3)
    )


@pytest.fixture
def provisioner(tmp_path: Path, clock: SetClock, trace: Trace) -> Iterator[LocalProvisioner]:
    provisioner = LocalProvisioner(tmp_path, clock, trace, ORIGIN_S)
    yield provisioner
    for path in (tmp_path / "nodes").glob("*/"):
        processes.kill(NodeDir(path))
    provisioner.list_nodes(RunId("main-1"))  # takes the exit status of what ended
