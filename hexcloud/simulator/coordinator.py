"""SimCoordinator: the controller's line to the simulated run. It answers while the trainer's head lives."""

from collections.abc import Iterator
from itertools import permutations

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import LinkReport, NodeView, RunPhase, RunView
from hexcloud.domain.plan import Role
from hexcloud.domain.run import RunRecord
from hexcloud.domain.world import GangPlan
from hexcloud.simulator.cloud import SimCloud
from hexcloud.simulator.machine import Machine


class SimCoordinator:
    """Implements ports.Coordinator. Faults named `coordinator` strike any call; they should be EngineErrors."""

    def __init__(self, cloud: SimCloud, run: RunRecord) -> None:
        self._cloud = cloud
        self._run = run

    def view(self) -> RunView:
        """Return the run as the coordinator knows it."""
        self._answer()
        training = self._cloud.training
        registered = [machine for machine in self._cloud.running() if machine.is_registered]
        is_training = training.phase is RunPhase.TRAINING
        made = sum(machine.samples_per_wall_s for machine in registered if machine.is_rollout())
        head = self._cloud.head()
        trained = self._cloud.trained_per_wall_s(head) if head else 0.0
        return RunView(
            run_id=self._run.id,
            head=training.head,
            phase=training.phase,
            epoch=training.epoch,
            version=training.version,
            steps=training.steps,
            trained_samples=training.version * training.samples_per_step,
            dropped_samples=0,
            first_step_at_s=training.first_step_wall_s,
            last_step_at_s=training.last_step_wall_s,
            staleness_histogram={},
            reward=0.0,
            samples_per_wall_s=min(made, trained) if is_training else 0.0,
            overlap_share=1.0 if is_training else 0.0,
            trainer_wait_s=0.0,
            outstanding=0,
            checkpoint_version=training.checkpoint_version,
            nodes=tuple(self._node_view(machine) for machine in registered),
            links=tuple(self._links(registered)),
        )

    def renew(self, run_until_s: float, gang: GangPlan | None = None) -> None:
        """Extend the spend lease of all registered machines."""
        self._answer()
        self._cloud.gang.planned = gang or self._cloud.gang.planned
        self._cloud.training.run_until_wall_s = run_until_s
        self._cloud.register()

    def admit(self, node_id: NodeId, token_sha256: str, role: Role, revoke: tuple[NodeId, ...] = ()) -> None:
        """Let a machine with this token register, as this; revoke others."""
        self._answer()
        admitted = self._cloud.training.admitted
        admitted[node_id] = (token_sha256, role)
        for revoked in revoke:
            admitted.pop(revoked, None)
        self._cloud.register()

    def drain(self, node_id: NodeId) -> None:
        """Let a machine finish."""
        self._answer()
        if machine := self._cloud.machines.get(node_id):
            machine.is_draining = True

    def stop(self, reason: str) -> None:
        """Begin the last checkpoint."""
        self._answer()
        training = self._cloud.training
        if training.done_at_s is None:
            training.done_at_s = self._cloud.clock.now_s() + self._cloud.habits.checkpoint_s

    def _node_view(self, machine: Machine) -> NodeView:
        since_s = machine.silent_since_s
        silent_run_s = 0.0 if since_s is None else self._cloud.clock.now_s() - since_s
        silent_s = silent_run_s / self._cloud.clock.scale
        return NodeView(
            node_id=machine.id,
            role=machine.spec.role,
            silent_s=silent_s,
            version=self._cloud.training.version,
            running=0 if machine.is_draining else int(machine.spec.slots * self._cloud.filled_share()),
            slots=machine.spec.slots,
            address=machine.id,
            tokens_per_s=self._cloud.rate_per_wall_s(machine) * machine.spec.tokens_per_sample,
            drained=machine.is_draining and (machine.is_head or machine.id not in self._cloud.gang.world),
            notice=machine.notice,
            heartbeat_at_s=self._cloud.clock.wall_s() - silent_s,
            generated_tokens=int(machine.made_samples * self._run.workload.response_tokens),
        )

    def _links(self, registered: list[Machine]) -> Iterator[LinkReport]:
        measured = self._cloud.gang_gb_per_s
        if measured is not None:
            for one, other in permutations((machine for machine in registered if not machine.is_rollout()), 2):
                yield LinkReport(node_id=one.id, target=other.id, gb_per_s=measured, latency_ms=0.1)

    def _answer(self) -> None:
        self._cloud.advance()
        with self._cloud.faults.around("coordinator"):
            if self._cloud.head() is None:
                raise EngineError("the trainer's head does not answer")
