"""One coordinator on a clock that the test moves, and what nodes and the trainer would say to it, in short."""

from pathlib import Path

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.lease import Lease
from hexcloud.domain.messages import (
    Batch,
    Heartbeat,
    LeaseGrant,
    LeaseRequest,
    Orders,
    Register,
    StepReport,
    Submission,
)
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.sample import Sample
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_start import Start

HEAD, A, B = NodeId("run.trainer-0.0"), NodeId("run.rollout-0.0"), NodeId("run.rollout-1.0")
BEGINNING = Start()


class Sums:
    """A task of one's own: no more than what the coordinator asks for."""

    max_new_tokens = 5
    vocabulary_size = 1000

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        number = index % 1000
        return (1, number), str(number)


class Desk:
    """One coordinator, two ends: what nodes and the trainer would say, in short."""

    def __init__(self, run_dir: Path, start: Start = BEGINNING, eta: int = 1, steps: int = 10, store: str = "") -> None:
        self.now_s = 1000.0
        spec = NodeSpec(
            run_id=RunId("run"),
            node_id=HEAD,
            slot=SlotName("trainer-0"),
            role=Role.TRAINER,
            task="sums",
            seed=0,
            slots=0,
            samples_per_step=4,
            group_size=2,
            eta=eta,
            steps=steps,
            run_dir=str(run_dir),
            output=str(run_dir / "output"),
            tokens_per_sample=2048,
            spend_lease_s=60.0,
            heartbeat_s=1.0,
            store=store,
        )
        access = AccessList("controller", {HEAD: token_sha256("head")})
        self.coordinator = Coordinator(spec, Sums(), access, start, clock=lambda: self.now_s)
        self.epoch = start.epoch

    def publish(self, version: int, epoch: int | None = None, sha256: str = "", checkpoint_version: int = -1) -> None:
        self.coordinator.publish(
            StepReport(
                epoch=self.epoch if epoch is None else epoch,
                version=version,
                path=f"/weights/{version}",
                sha256=sha256 or f"hash of {version}",
                size=10,
                reward=0.5,
                busy_s=0.5,
                wait_s=0.1,
                checkpoint_version=checkpoint_version,
            )
        )

    def register(self, node_id: NodeId = A, role: Role = Role.ROLLOUT) -> Orders:
        return self.coordinator.register(Register(node_id=node_id, role=role, slots=8, address=f"{node_id}:1"))

    def beat(self, node_id: NodeId = A, epoch: int = 0, held: tuple[Lease, ...] = ()) -> Orders:
        return self.coordinator.heartbeat(
            Heartbeat(
                node_id=node_id,
                epoch=epoch,
                version=0,
                running=len(held),
                generated_tokens=0,
                leases=tuple((lease.id, lease.attempt) for lease in held),
            )
        )

    def ask(self, want: int, version: int = 0, node_id: NodeId = A) -> LeaseGrant:
        return self.coordinator.lease(LeaseRequest(node_id=node_id, epoch=self.epoch, version=version, want=want))

    def submit(self, leases: tuple[Lease, ...], node_id: NodeId = A) -> None:
        samples = tuple(
            Sample(
                lease=lease.id,
                attempt=lease.attempt,
                group=lease.group,
                index=lease.index,
                epoch=lease.epoch,
                prompt_ids=lease.prompt_ids,
                tokens=(7, 2),
                logprobs=(-0.1, -0.2),
                versions=(lease.version, lease.version),
                reward=float(lease.index),
            )
            for lease in leases
        )
        self.coordinator.submit(Submission(node_id=node_id, samples=samples))

    def batch(self) -> Batch:
        return self.coordinator.batch_now()

    def step(self, version: int) -> None:
        """Generate, train and publish up to `version`, in a second each."""
        self.submit(self.ask(4, version=version - 1).leases)
        self.now_s += 0.5
        assert self.batch().groups
        self.now_s += 0.5
        self.publish(version)
