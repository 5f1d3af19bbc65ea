from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud.domain.command import Emulation, NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.tasks import TASKS

MakeSpec = Callable[[Role], NodeSpec]
HEAD, NODE = NodeId("run.trainer.0"), NodeId("run.rollout.0")


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[[Role], NodeSpec]:
    """Make the specification of the run's trainer or of its one rollout node."""

    def make(role: Role) -> NodeSpec:
        return NodeSpec(
            run_id=RunId("run"),
            node_id=HEAD if role is Role.TRAINER else NODE,
            slot=SlotName(role.value),
            role=role,
            task="sort_digits",
            seed=0,
            slots=16,
            samples_per_step=32,
            group_size=8,
            eta=4,
            steps=1000,
            run_dir=str(tmp_path),
            output=str(tmp_path / "output"),
            tokens_per_sample=2048,
            spend_lease_s=120.0,
            heartbeat_s=0.1,
            emulation=Emulation(clock_scale=60, samples_per_s=500, link_bytes_per_s=8e6, link_latency_ms=1.0),
        )

    return make


@pytest.fixture
def coordinator(make_spec: Callable[[Role], NodeSpec]) -> Coordinator:
    """A coordinator that knows the tokens `head-token` and `node-token`."""
    spec = make_spec(Role.TRAINER)
    access = AccessList("controller-token", {HEAD: token_sha256("head-token")})
    access.admit(NODE, token_sha256("node-token"))
    return Coordinator(spec, TASKS[spec.task.name], access)
