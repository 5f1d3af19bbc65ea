"""Coordinator: the run's state on the trainer's head node. Admission, nodes, weights and metrics behind one door.

It lives in one event loop and no method but `batch` awaits, so every call sees and leaves whole state. It owns no
socket (coordinator_app.py) and decides nothing about staleness (admission/).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from hexcloud.admission.admission import Admission, Ask, Receipt
from hexcloud.admission.groups import Prompt
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import HexcloudError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import (
    INTERRUPTION,
    Admit,
    Batch,
    DrainRequest,
    Evaluation,
    Heartbeat,
    LeaseGrant,
    LeaseRenewal,
    LeaseRequest,
    LinkReport,
    Notice,
    Orders,
    PartialCommit,
    Register,
    Renewal,
    RunPhase,
    RunView,
    StepReport,
    StopRequest,
    Submission,
    WeightsWays,
)
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator_access import AccessList
from hexcloud.runtime.coordinator_care import WorkerCare
from hexcloud.runtime.coordinator_gang import TrainerGang
from hexcloud.runtime.coordinator_metrics import RunMetrics
from hexcloud.runtime.coordinator_nodes import KnownNode, NodeTable
from hexcloud.runtime.coordinator_publish import ConflictError, Publisher
from hexcloud.runtime.coordinator_start import BEGINNING, PromptSource, Start, terms_of
from hexcloud.runtime.coordinator_weights import PublishedWeights

SILENT_BEATS = 5
"""Heartbeats missed before a worker's leases go to others."""
FULL_RETRY_S = 0.1
"""A worker asks again after this when nothing may start; a step of the default job takes about a second."""
IDLE_RETRY_S = 1.0
"""The same while nothing will start for longer: draining, or the run is over."""
BATCH_WAIT_S = 2.0
"""A trainer's question for a batch is answered within this."""

log = structlog.get_logger()


class UnknownNodeError(HexcloudError):
    """The node is admitted and has not registered: register, then repeat."""


class Coordinator:
    """The state of one run. `clock` gives wall seconds since the epoch."""

    def __init__(
        self,
        spec: NodeSpec,
        task: PromptSource,
        access: AccessList,
        start: Start = BEGINNING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin or go on with a run. `spec` is the trainer's head node's."""
        self.spec = spec
        self.access = access
        self.run_until_s = clock() + spec.spend_lease_s
        """The spend lease of every node, wall seconds since the epoch."""
        self.stop_reason = ""
        """Why no more step is begun; empty while steps are."""
        self.has_lapsed = False
        """Whether the spend lease ran out: whoever runs this should see the checkpoint written and exit."""
        self.sent_bytes: Counter[NodeId] = Counter()
        """Weights sent to each node so far."""
        self._task = task
        self._clock = clock
        self._cursor = start.cursor
        self._admission = Admission(terms_of(spec, task), start.epoch, start.version)
        self._nodes = NodeTable()
        self.gang = TrainerGang(spec, self._nodes)
        """Whose ranks train."""
        self._care = WorkerCare(self._nodes, self._admission, clock)
        # A worker told of a version must still find it when it has trained on: eta + 2 cover any useful one.
        self.weights = PublishedWeights(keep=spec.eta + 2)
        """What is served."""
        self._metrics = RunMetrics(Path(spec.run_dir))
        self._metrics.checkpoint_version = start.version if start.epoch else -1
        self._publisher = Publisher(self._admission, self.weights, self._metrics, clock)
        self._accuracy: dict[str, float] = {}
        self._is_finished = self._must_checkpoint = self._is_checkpoint_asked = False
        # Of a run with a store: what of it another head would find there.
        self._is_delivered = not spec.store
        self._stored_version, self._store_trouble = -1, ""
        self._news = asyncio.Event()

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._admission.epoch

    @property
    def is_over(self) -> bool:
        """Whether no more step will be begun."""
        return bool(self.stop_reason) or self._admission.version >= self.spec.steps

    @property
    def is_finished(self) -> bool:
        """Whether the trainer has written everything there is to write."""
        return self._is_finished

    @property
    def is_done(self) -> bool:
        """Whether what it has written is where it outlives this machine."""
        return self._is_finished and self._is_delivered

    # What nodes say.

    def register(self, message: Register) -> Orders:
        """Know a node and tell it what to do."""
        node = self._nodes.register(message, self._clock())
        self._join(node)
        log.info("node_registered", node=node.id, role=node.role, slots=node.slots)
        return self._orders(node, ())

    def heartbeat(self, message: Heartbeat) -> Orders:
        """Hear what a node does and tell it what to do. Raises UnknownNodeError."""
        node = self._heard(message.node_id)
        if message.notice is not None and node.notice != message.notice:
            self._hear_notice(node, message.notice)
        node.note(message, self._clock())
        return self._orders(node, self._admission.hear(node.id, message.epoch, message.leases))

    def lease(self, message: LeaseRequest) -> LeaseGrant:
        """Grant leases, or name the version to load first, or neither. Raises UnknownNodeError."""
        node = self._heard(message.node_id)
        latest = self.weights.latest
        if latest is None:
            return LeaseGrant(retry_s=FULL_RETRY_S)
        if node.is_draining or node.trouble or self.is_over:
            return LeaseGrant(retry_s=IDLE_RETRY_S)
        law = self._admission.terms.law
        free = node.most(law.most_outstanding, law.group_size) - self._admission.leases.count(node.id)
        ask = Ask(node.id, message.epoch, message.version, max(0, min(message.want, free)), node.is_fast)
        granted = self._admission.grant(ask, self._clock(), self._draw)
        self._note_work()
        if granted.must_load:
            return LeaseGrant(load=latest, retry_s=FULL_RETRY_S)
        return LeaseGrant(leases=granted.leases, retry_s=FULL_RETRY_S)

    def submit(self, message: Submission) -> None:
        """Take finished samples; repetitions and late ones change nothing. Raises UnknownNodeError."""
        node = self._heard(message.node_id)
        receipts = Counter(self._admission.submit(message.node_id, sample) for sample in message.samples)
        self._care.judge(node, receipts)
        self._note_work()
        if self._admission.has_batch:
            self._news.set()

    def keep(self, message: LeaseRenewal) -> None:
        """Renew leases. Raises UnknownNodeError."""
        node = self._heard(message.node_id)
        for lease_id, attempt in message.leases:
            if (lease := self._admission.leases.held(lease_id, attempt, node.id)) is not None:
                self._admission.renew(lease, self._clock())

    def commit(self, message: PartialCommit) -> None:
        """Renew leases, park tokens, take back what is released. Raises UnknownNodeError, and ConflictError at last."""
        node, new_tokens, receipts = self._heard(message.node_id), 0, Counter[Receipt]()
        for part in message.partials:
            lease = self._admission.leases.held(part.lease, part.attempt, message.node_id)
            if lease is None:
                continue
            receipt = self._admission.commit(lease, part.made, self._clock(), part.start)
            receipts[receipt] += 1
            if receipt is Receipt.ACCEPTED:
                new_tokens += part.start + part.made.length - len(lease.prefix)
                if message.released:
                    self._admission.release(lease)
        self._care.hear(node, receipts, new_tokens, message.released and not self.is_over)
        self._note_work()
        if receipts[Receipt.GAP]:
            raise ConflictError(f"of {receipts[Receipt.GAP]} samples the tokens before are not known")

    def link(self, report: LinkReport) -> None:
        """Keep a measured link. Raises UnknownNodeError."""
        self._heard(report.node_id)
        self._nodes.note_link(report)

    def region_of(self, node_id: NodeId) -> str:
        """Return `cloud/region` of a node, by its first word; empty: not known. Raises UnknownNodeError."""
        return self._heard(node_id).region

    def ways(self, node_id: NodeId, epoch: int, version: int) -> WeightsWays:
        """Say how a node may get to a version. Raises UnknownNodeError."""
        node = self._heard(node_id)
        return WeightsWays(
            deltas=self.weights.deltas_to(epoch, version),
            relay=self._nodes.relay_for(node, self.spec.region),
            relay_key=self._nodes.relay_key,
            has_store=self.weights.copies.is_open(node.region),
        )

    # What the trainer says.

    async def batch(self, wait_s: float = BATCH_WAIT_S) -> Batch:
        """Return the next batch, waiting up to `wait_s` for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not (self.is_over or self._admission.has_batch):
                    self._news.clear()
                    await self._news.wait()
        return self.batch_now()

    def batch_now(self) -> Batch:
        """Return the next batch, none when it is not ready; asked again before its publish, the same one."""
        if self.is_over:
            self._note_work()
            self._metrics.overlap.close()
            return Batch(version=self._admission.version, done=True, checkpoint=bool(self.stop_reason))
        groups = self._admission.take()
        self._is_checkpoint_asked = self._must_checkpoint
        if groups:
            self._metrics.begin_step(self._clock())
            self._note_work()
        return Batch(
            version=self._admission.version,
            groups=groups,
            cursor=self._cursor if groups else 0,
            checkpoint=self._must_checkpoint,
            rewrite=self.weights.is_latest_damaged,
            world=self.gang.world,
        )

    def publish(self, report: StepReport) -> None:
        """Serve a new version and count it for admission. May be repeated. Raises ConflictError."""
        self._publisher.publish(report)
        if self._is_checkpoint_asked:  # with the batch of this version; a notice since then wants another
            self._must_checkpoint = self._is_checkpoint_asked = False
        self._note_work()

    def evaluate(self, message: Evaluation) -> None:
        """Keep an accuracy."""
        self._accuracy[message.when] = message.accuracy

    def finish(self) -> None:
        """Say that output and checkpoint are written and the run is done. The trainer's node may end now."""
        self._is_finished = True
        log.info("run_finished", version=self._admission.version, reason=self.stop_reason)

    # What the run's store says.

    def note_store(self, version: int, trouble: str) -> None:
        """Know the newest checkpoint in the store (-1: none), and why the store cannot be written (empty: it can)."""
        self._stored_version, self._store_trouble = version, trouble

    def deliver(self) -> None:
        """Say that everything the run leaves is in the store. The trainer's machines may end now."""
        self._is_delivered = True

    # What the controller says.

    def renew(self, message: Renewal) -> None:
        """Move the end of the spend lease, and know what is planned of the trainer."""
        self.run_until_s = message.run_until_s
        self.gang.planned = message.gang or self.gang.planned

    def admit(self, message: Admit) -> None:
        """Let a node in; let revoked ones in no more, their leases are lost."""
        self.access.admit(message.node_id, message.token_sha256, message.role)
        for node_id in message.revoke:
            self.access.revoke(node_id)
            self._nodes.forget(node_id)
            self._admission.leave(node_id)
        self._note_work()

    def drain(self, message: DrainRequest) -> None:
        """Let a node finish what it holds and exit."""
        self._nodes.drain(message.node_id)

    def stop(self, message: StopRequest) -> None:
        """Begin no more step; the first reason stays."""
        if not self.stop_reason:
            self.stop_reason = message.reason or "stopped"
            log.info("run_stopping", reason=self.stop_reason)
            self._news.set()

    # What time says.

    def tick(self) -> None:
        """Give up on silent workers and overdue leases, and stop the run when its spend lease has lapsed."""
        now_s = self._clock()
        for node_id in self._nodes.silence(now_s, SILENT_BEATS * self.spec.heartbeat_s):
            self._admission.leave(node_id)
            log.warning("node_silent", node=node_id)
        self._care.overdue(self._admission.expire(now_s))
        self._nodes.weigh(self._care.rate)
        if now_s >= self.run_until_s and not self.has_lapsed:
            self.has_lapsed = True
            self.stop(StopRequest(reason="the spend lease lapsed"))
        self._note_work()

    def view(self) -> RunView:
        """Return the run as far as it is known here."""
        self._note_work()
        now_s, admission, metrics = self._clock(), self._admission, self._metrics
        until_s = (metrics.last_step_at_s or now_s) if self.is_over else now_s
        return RunView(
            run_id=self.spec.run_id,
            head=self.spec.node_id,
            phase=self._phase(),
            epoch=self.epoch,
            version=admission.version,
            steps=self.spec.steps,
            trained_samples=admission.trained_samples,
            dropped_samples=admission.dropped_samples,
            filtered_samples=admission.filtered_samples,
            first_step_at_s=metrics.first_step_at_s,
            last_step_at_s=metrics.last_step_at_s,
            staleness_histogram=dict(sorted(metrics.staleness.items())),
            reward=metrics.reward,
            samples_per_wall_s=metrics.samples_per_s(until_s),
            overlap_share=metrics.overlap.share,
            trainer_wait_s=metrics.trainer_wait_s,
            outstanding=admission.outstanding,
            checkpoint_version=self._stored_version if self.spec.store else metrics.checkpoint_version,
            store_trouble=self._store_trouble,
            accuracy_before=self._accuracy.get("before"),
            accuracy_after=self._accuracy.get("after"),
            sent_bytes=dict(self.sent_bytes),
            stored_bytes=dict(self.weights.copies.sent_bytes),
            stores_trouble=dict(self.weights.copies.trouble),
            nodes=self._care.views(self._held, now_s),
            links=self._nodes.links,
        )

    def _held(self, node: KnownNode) -> int:
        return self._admission.leases.count(node.id) + self.gang.holds(node.id)

    def _phase(self) -> RunPhase:
        if self.is_done:
            return RunPhase.DONE
        return RunPhase.STARTING if self._metrics.first_step_at_s is None else RunPhase.TRAINING

    def _heard(self, node_id: NodeId) -> KnownNode:
        """Return a registered node that has just spoken; one that counted as lost is back, without its leases."""
        node = self._nodes.get(node_id)
        if node is None:
            raise UnknownNodeError(f"{node_id} has not registered")
        node.heard_at_s = self._clock()
        if node.is_silent:
            node.is_silent = False
            self._join(node)
        return node

    def _hear_notice(self, node: KnownNode, notice: Notice) -> None:
        """A machine of the gang that goes takes the gang with it: what is trained is put away in time."""
        log.warning("node_has_notice", node=node.id, cause=notice.cause, until_s=notice.until_s)
        if node.role is Role.TRAINER and notice.cause == INTERRUPTION:
            self._must_checkpoint, self._is_checkpoint_asked = True, False

    def _join(self, node: KnownNode) -> None:
        if node.role is Role.ROLLOUT and node.slots:  # of a replica only its head works
            self._admission.join(node.id, node.slots)

    def _orders(self, node: KnownNode, abort: tuple[str, ...]) -> Orders:
        return Orders(
            epoch=self.epoch,
            latest=self.weights.latest,
            run_until_s=self.run_until_s,
            drain=node.is_draining,
            # The trainer's nodes outlive the last step: they still write the output.
            stop=self.is_over if node.role is Role.ROLLOUT else self.is_done,
            abort=abort,
            probe=self._nodes.probes(node, self._clock()),
            world=self.gang.world if node.role is Role.TRAINER else None,
        )

    def _draw(self) -> Prompt:
        self._cursor += 1
        return Prompt(*self._task.prompt(self.spec.seed, self._cursor - 1))

    def _note_work(self) -> None:
        self._metrics.overlap.note(self._clock(), self._admission.is_training, len(self._admission.leases) > 0)
