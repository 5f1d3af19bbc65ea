"""Rented: a provisioner on an emulated EC2 with a stand-in for SkyPilot, called as a controller calls it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.command import Command
from hexcloud.domain.errors import NotYetError, ProvisionError
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.offer import Offer, Tenure, offer_id
from tests.adapters.provisioners.sky_stand_in import SkyStandIn

RUN = RunId("main-1")
ORIGIN_S = 1000.0
OFFER = Offer(
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


@dataclass
class Rented:
    """A provisioner, its SkyPilot, and the calls that a controller repeats every turn."""

    folder: Path
    sky: SkyStandIn
    machines: AwsMachines
    now: SkyPilotProvisioner

    def restart(self) -> None:
        """As after kill -9: only what is on disk and outside is left."""
        self.now.close()
        self.now = SkyPilotProvisioner(RUN, self.folder, self.sky, {"aws": self.machines}, wait_s=10.0)

    def launch(self, nodes: tuple[Node, ...], offer: Offer, turns: int = 20) -> str:
        """Launch as a controller does; return the phases that were said, in order."""
        phases: list[str] = []
        for _ in range(turns):
            try:
                self.now.launch(nodes, offer, tuple(command(node) for node in nodes))
            except NotYetError as wait:
                phases += [wait.phase] if not phases or phases[-1] != wait.phase else []
                continue
            return " ".join(phases)
        raise AssertionError(f"not through after {turns} turns: {phases}")

    def refusal(self, nodes: tuple[Node, ...], offer: Offer) -> ProvisionError:
        with pytest.raises(ProvisionError) as refused:
            self.launch(nodes, offer)
        return refused.value

    def end(self, node_id: NodeId, turns: int = 20) -> None:
        for _ in range(turns):
            try:
                self.now.terminate(node_id)
            except NotYetError:
                continue
            return
        raise AssertionError(f"not ended after {turns} turns")

    def listed(self) -> tuple[NodeId, ...]:
        return self.now.list_nodes(RUN)


def command(node: Node) -> Command:
    return Command(
        image=None,
        argv=("python", "-m", "hexcloud.node", node.role.value),
        env={},
        secrets={"HEXCLOUD_NODE_TOKEN": f"token of {node.id}"},
        files={"note.txt": node.id},
    )
