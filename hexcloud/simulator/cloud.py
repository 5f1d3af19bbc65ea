"""SimCloud: machines that start, train, fall silent, are taken back, and end themselves when their lease lapses.

Time passes when a port is called: everything due since the last call happens then, in order.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import INTERRUPTION, Notice
from hexcloud.domain.offer import OfferId, Tenure
from hexcloud.simulator.capacity import Capacity
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.faults import Faults, Outage
from hexcloud.simulator.gang import SimGang
from hexcloud.simulator.machine import Machine
from hexcloud.simulator.prices import SimMarket
from hexcloud.simulator.training import Training

FIXED_STEP_SHARE = 0.5
"""Share of a full engine's decode step that takes as long with one sample: reading the weights."""


class LossKind(StrEnum):
    """What happens to a machine."""

    PREEMPT = "preempt"
    """It is taken back without notice."""
    NOTICE = "notice"
    """It is taken back, and told so a while before."""
    SILENCE = "silence"
    """Its process hangs: it bills on and says nothing."""


@dataclass(frozen=True)
class Loss:
    """At `at_s` (run clock) the `nth` working machine is struck, from the oldest and round; of one offer or any."""

    at_s: float
    kind: LossKind
    nth: int = 0
    offer_id: OfferId | None = None


@dataclass(frozen=True)
class Habits:
    """How a simulated provider behaves. Run-clock seconds."""

    provision_s: float = 0.0
    """From the first call to a machine that exists; it bills from the call on."""
    setup_s: float = 0.0
    """From there to the start of its program."""
    boot_s: float = 120.0
    """From there to its first word."""
    visible_after_s: float = 1.0
    """A new machine is missing from the list for this long."""
    stop_s: float = 5.0
    """From the order to end to the end of the bill."""
    notice_s: float = 120.0
    """From an interruption notice to the end (AWS: two minutes)."""
    checkpoint_s: float = 10.0
    resize_s: float = 8.0
    """From the order that a machine leaves its gang to a gang that does without it."""
    is_elastic: bool = True
    """Can machines of a gang come and go one by one?"""


@dataclass
class SimCloud:
    """One provider and the run on its machines."""

    clock: VirtualClock
    market: SimMarket
    capacity: Capacity = field(default_factory=Capacity)
    losses: tuple[Loss, ...] = ()
    faults: Faults = field(default_factory=Faults)
    outages: tuple[Outage, ...] = ()
    habits: Habits = Habits()
    engines: Mapping[str, float] = field(default_factory=dict)
    """GPU -> samples per run second that a full rollout machine really makes; where absent, what the plan says."""
    gang_gb_per_s: float | None = None
    """What probes measure between the machines of a trainer gang, 1e9 bytes/s; None: they measure nothing."""
    machines: dict[NodeId, Machine] = field(default_factory=dict)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        self.gang = SimGang(self.habits.resize_s)
        self._at_s = self.clock.now_s()
        self._struck: set[Loss] = set()

    def advance(self) -> None:
        """Let everything happen that is due by now, in order."""
        now_s = self.clock.now_s()
        while self._at_s < now_s:
            next_s = min((at_s for at_s in self._due_times() if at_s > self._at_s), default=now_s)
            next_s = min(next_s, now_s)
            self._train(next_s)
            self._at_s = next_s
            self._happen()

    def running(self) -> tuple[Machine, ...]:
        """Return the machines that exist and bill."""
        return tuple(machine for machine in self.machines.values() if machine.exists)

    def silent(self) -> frozenset[str]:
        """Return the regions, as `cloud/region`, that answer no call now."""
        now_s = self.clock.now_s()
        return frozenset(outage.place for outage in self.outages if outage.from_s <= now_s < outage.to_s)

    def head(self) -> Machine | None:
        """Return the machine whose coordinator answers."""
        heads = [machine for machine in self.running() if machine.is_head and machine.is_registered]
        if len(heads) > 1:
            raise AssertionError(f"two coordinators at once: {[head.id for head in heads]}")
        return heads[0] if heads and heads[0].silent_since_s is None else None

    def filled_share(self) -> float:
        """Return the share of their slots that rollout machines fill: as many as make what the trainer takes."""
        needed = self._needed_share()
        return needed * FIXED_STEP_SHARE / (1.0 - needed * (1.0 - FIXED_STEP_SHARE))

    def rate_per_wall_s(self, machine: Machine) -> float:
        """Return the samples per wall second of a full rollout machine; nothing without the others of its replica."""
        spec = machine.spec
        asked = (spec.head, machine.launched_s)
        there = sum(one.is_registered and (one.spec.head, one.launched_s) == asked for one in self.running())
        is_whole = spec.head is None or there == spec.gang
        return machine.samples_per_wall_s if is_whole else 0.0

    def trained_per_wall_s(self, head: Machine) -> float:
        """Return the samples per wall second that the gang can train: in proportion to its machines."""
        return head.samples_per_wall_s * self.gang.share(head)

    def billed_usd(self, run_id: RunId) -> float:
        """Return what the run's machines have truly cost until now: rent only."""
        now_s = self.clock.now_s()
        return sum(
            self.market.usd(machine.offer.id, machine.launched_s, now_s if machine.ended_s is None else machine.ended_s)
            for machine in self.machines.values()
            if machine.spec.run_id == run_id
        )

    def register(self) -> None:
        """Let every machine that is up and may join do so, with the lease that its heartbeat then brings."""
        head = self.head()
        if head is None:
            return
        for machine in self.running():
            if machine.boots_s <= self._at_s and not machine.is_head and not machine.is_registered:
                machine.is_registered = self.training.admitted.get(machine.id) == (machine.token, machine.spec.role)
            if machine.is_registered and self.training.run_until_wall_s is not None:
                machine.run_until_wall_s = self.training.run_until_wall_s
        if self.gang.follow(head, self.running(), self._at_s) and not self.training.is_over:
            self.training.begin_anew()

    def _due_times(self) -> Iterator[float]:
        for machine in self.running():
            yield machine.boots_s
            yield self._run_s(machine.run_until_wall_s)
            if machine.ends_s is not None:
                yield machine.ends_s
        yield from self.capacity.times()
        yield from (loss.at_s for loss in self.losses)
        yield from self.gang.due_s()
        if self.training.done_at_s is not None:
            yield self.training.done_at_s

    def _happen(self) -> None:
        for machine in self.running():
            if machine.ends_s is not None and machine.ends_s <= self._at_s:
                machine.end(self._at_s, "terminated")
            elif self._run_s(machine.run_until_wall_s) <= self._at_s:
                machine.end(self._at_s, "spend lease lapsed")
        self._take_back()
        self._strike()
        self._boot()
        self._finish()
        self.register()

    def _finish(self) -> None:
        """Write checkpoint and output when all is trained or a stop was asked for; rollout nodes leave then."""
        training = self.training
        if self.head() is None:
            return
        if training.is_over and training.done_at_s is None:
            training.done_at_s = self._at_s + self.habits.checkpoint_s
        if training.done_at_s is not None and training.done_at_s <= self._at_s:
            training.checkpoint()
        for machine in self.running() if training.is_over else ():
            if machine.is_rollout() and machine.is_registered:
                machine.end(self._at_s, "the run is over")

    def _take_back(self) -> None:
        """End the youngest spot machines of every offer that has more than its capacity."""
        by_offer: dict[OfferId, list[Machine]] = {}
        for machine in self.running():
            by_offer.setdefault(machine.offer.id, []).append(machine)
        for offer_id, machines in by_offer.items():
            over = len(machines) - self.capacity.limit(offer_id, self._at_s)
            if over > 0 and machines[0].offer.tenure is Tenure.SPOT:
                for machine in machines[-over:]:
                    machine.end(self._at_s, "taken back")

    def _strike(self) -> None:
        for loss in self.losses:
            if loss.at_s > self._at_s or loss in self._struck:
                continue
            self._struck.add(loss)
            working = tuple(self._working(loss.offer_id))
            victim = working[loss.nth % len(working)] if working else None
            if victim and loss.kind is LossKind.SILENCE:
                victim.silent_since_s = self._at_s
            elif victim and loss.kind is LossKind.NOTICE:
                victim.ends_s = self._at_s + self.habits.notice_s
                until_s = self.clock.to_wall(victim.ends_s)
                victim.notice = Notice(cause=INTERRUPTION, until_s=until_s, detail="terminate")
            elif victim:
                victim.end(self._at_s, "preempted")

    def _working(self, offer_id: OfferId | None) -> Iterator[Machine]:
        return (
            machine
            for machine in self.running()
            if machine.is_registered and machine.silent_since_s is None and offer_id in {None, machine.offer.id}
        )

    def _boot(self) -> None:
        """Start the coordinators of heads that are up: a new epoch, in which nobody is registered."""
        for machine in self.running():
            if machine.is_head and not machine.is_registered and machine.boots_s <= self._at_s:
                machine.is_registered = True
                self.training.recover(machine.id, machine.spec.steps, machine.spec.samples_per_step)
                self.gang.begin()
                for other in self._others(machine):
                    other.is_registered = False

    def _others(self, machine: Machine) -> Iterable[Machine]:
        return (other for other in self.running() if not other.is_head and other is not machine)

    def _train(self, until_s: float) -> None:
        """Pass samples at the slower of the two pools until a moment at which the fleet changes."""
        head = self.head()
        if head is None or self.training.is_done:
            return
        wall_s, share = (until_s - self._at_s) / self.clock.scale, self._needed_share()
        for machine in self.running():
            if machine.is_rollout():
                machine.made_samples += self.rate_per_wall_s(machine) * share * wall_s
        trained = min(self._rollout_per_wall_s(), self.trained_per_wall_s(head))
        self.training.train(trained * wall_s, self.clock.to_wall(until_s))

    def _needed_share(self) -> float:
        """Return the share of what the rollout machines can make that is admitted: no more than the trainer takes."""
        head, rollout = self.head(), self._rollout_per_wall_s()
        if head is None or self.training.is_over or rollout <= 0:
            return 0.0
        return min(1.0, self.trained_per_wall_s(head) / rollout)

    def _rollout_per_wall_s(self) -> float:
        """Return the samples per wall second that the rollout machines make when all are full."""
        return sum(self.rate_per_wall_s(machine) for machine in self.running() if machine.is_rollout())

    def _run_s(self, wall_s: float) -> float:
        return self.clock.to_run(wall_s)
