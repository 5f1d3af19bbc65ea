"""A node, its offer, and a clock and a trace that the test sets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.markets.trace import Trace, TraceEvent, TraceKind
from hexcloud.adapters.provisioners import processes
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.provisioners.node_dir import NodeDir
from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.fleet import Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role, SlotName
from tests.adapters.provisioners.renting import OFFER, ORIGIN_S, RUN, Rented, SetClock
from tests.adapters.provisioners.sky_stand_in import SkyStandIn


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
    return OFFER


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


@pytest.fixture
def rented(moto: Any, tmp_path: Path) -> Iterator[Rented]:
    machines = AwsMachines(Patience(connect_s=2, read_s=10, attempts=1))
    sky = SkyStandIn()
    provisioner = SkyPilotProvisioner(RUN, tmp_path, sky, {"aws": machines}, wait_s=10.0)
    found = Rented(tmp_path, sky, machines, provisioner)
    yield found
    moto.tell()
    machines.end(machines.listed({"hexcloud-run": ""}))
    found.now.close()
    machines.close()


@pytest.fixture
def here(offer: Offer) -> Offer:
    """The offer, in a zone that the emulated EC2 has."""
    return offer.model_copy(update={"zone": "use1-az6"})


@pytest.fixture
def gang(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(
        node.model_copy(update={"role": Role.TRAINER, "rank": rank, "gang": len(nodes)})
        for rank, node in enumerate(nodes)
    )
