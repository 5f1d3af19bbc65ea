"""judge: is a change worth its disruption? Every word is a verdict with its figures, and no verdict drops the target.

A fleet that is short is repaired at once. Everything else must pay: saving over the horizon > k * disruption.
"""

from itertools import chain

from hexcloud.domain.diff import Judgement, MoveKind, Verdict
from hexcloud.domain.fleet import FleetState, Node, NodeStatus
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Columns, ExecutionPlan, Placement, Role, Slot, SlotName
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.resize import resize_s
from hexcloud.estimate.risk import startup_s
from hexcloud.planner.diff import diff
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.planner.moves import Move, independent_moves, leaves_region, units, whole_move
from hexcloud.planner.problem import Problem
from hexcloud.planner.resize import is_resize
from hexcloud.planner.worth import Worth


class Case(Frozen):
    """What is brought before the judge: a proposed plan, and the placement that is in force."""

    plan: ExecutionPlan
    current: Placement | None
    fleet: FleetState
    market: Market
    workload: Workload
    policy: Policy
    now_s: float
    """Run clock, seconds since the epoch."""
    can_resize: bool = False
    """Can the gang that runs change its number of machines as it trains?"""


def judge(case: Case) -> Judgement:
    """Return verdicts on all changes from the running fleet to the plan, and the placement after the approved ones.

    Pure. Without a current placement the plan is started. Slots that lost their node leave the placement; the plan's
    launches that restore its rules are approved at once. Then each independent move must pay for itself.
    """
    if case.current is None:
        return _start(case)
    bench = _Bench(case, case.current)
    repair, verdicts = bench.repair()
    slots, savings = bench.save(repair.apply(bench.held), bench.starting() + len(repair.joins))
    return Judgement(verdicts=(*verdicts, *savings), placement=Placement(slots=bench.repriced(slots)))


def _start(case: Case) -> Judgement:
    change = diff(case.plan.placement, case.fleet)
    cost = case.plan.placement.usd_per_hour
    verdict = Verdict(
        kind=MoveKind.START,
        approved=True,
        launches=change.launches,
        releases=change.releases,
        saving_usd=0.0,
        disruption_usd=0.0,
        reason=f"the run has no fleet yet: launch {len(change.launches)} machines for {cost:.2f} USD/h",
    )
    return Judgement(verdicts=(verdict,), placement=case.plan.placement)


class _Bench:
    """One case, worked out: which slots still run, what they are worth, what the plan would change."""

    def __init__(self, case: Case, current: Placement) -> None:
        self.case = case
        self.nodes: dict[SlotName, Node] = {
            node.slot: node for node in case.fleet.live() if node.status is not NodeStatus.DRAINING
        }
        broken = {slot.unit for slot in current.slots if slot.name not in self.nodes}
        # Of a replica that lacks a machine the others are of no use: it is lost as a whole.
        self.held = tuple(slot for slot in current.slots if slot.unit not in broken)
        self.lost = tuple(slot for slot in current.slots if slot.unit in broken)
        slots = (*current.slots, *case.plan.placement.slots)
        columns = Columns(
            rollout=tuple(slot.rollout for slot in slots if slot.rollout is not None),
            trainer=tuple(slot.trainer for slot in slots if slot.trainer is not None),
        )
        self.problem = Problem(columns, case.market, case.workload, case.policy, case.fleet)
        self.worth = Worth(self.problem, self._required(current))

    def _required(self, current: Placement) -> float:
        """Return samples/s to keep: the target, or without one what runs now, as far as the plan keeps it too."""
        policy, promised = self.case.policy, self.case.plan.forecast.samples_per_s
        if policy.objective is Objective.MIN_COST and policy.target_samples_per_s is not None:
            return policy.target_samples_per_s
        return min(promised, Worth(self.problem, promised).throughput(current.slots))

    def starting(self) -> int:
        """Return how many machines of the fleet are on their way already."""
        coming = (NodeStatus.REQUESTED, NodeStatus.STARTING)
        return sum(1 for slot in self.held if self.nodes[slot.name].status in coming)

    def repair(self) -> tuple[Move, tuple[Verdict, ...]]:
        """Return the least change that makes the fleet whole again, and the verdict on it."""
        broken = self.worth.broken(self.held)
        if not self.lost and not {"target", "hourly_budget"} & broken.keys():
            return Move(), ()
        move = self._least_repair()
        if move.is_empty and not self.lost:
            return move, ()
        found = [f"{', '.join(slot.name for slot in self.lost)} gone"] if self.lost else []
        trouble = "; ".join([*found, *broken.values()])
        verdict = self._verdict(MoveKind.REPAIR, move, self.held)
        if move.is_empty:
            return move, (verdict.model_copy(update={"reason": f"{trouble}: the rest will do"}),)
        return move, (verdict.model_copy(update={"approved": True, "reason": f"{trouble}: {_in_words(move)}"}),)

    def _least_repair(self) -> Move:
        """Return the fewest of the plan's changes after which no rule is broken but those that the plan breaks too.

        A gang that is short comes first, whole; then rollout launches, cheapest per sample first; else the whole plan.
        """
        whole = whole_move(self.held, self.case.plan.placement)
        gang = whole.gang_part if self.worth.train_rate(self.held) < self.worth.samples_per_s else Move()
        if leaves_region(gang, (*self.held, *self.lost)):
            return whole
        joins = units(whole.rollout_part.joins)
        launches = sorted(joins, key=lambda unit: (self.worth.usd_per_sample(unit), unit[0].name))
        allowed = self.worth.broken(self.case.plan.placement.slots).keys()
        for count in range(len(launches) + 1):
            move = gang.model_copy(update={"joins": (*gang.joins, *chain(*launches[:count]))})
            if self.worth.broken(move.apply(self.held)).keys() <= allowed:
                return move
        return whole

    def save(self, slots: tuple[Slot, ...], busy: int) -> tuple[tuple[Slot, ...], tuple[Verdict, ...]]:
        """Return the slots after all moves that pay, and a verdict on each move; `busy` machines are coming already."""
        whole = whole_move(slots, self.case.plan.placement)
        moves = independent_moves(whole, slots, self.worth)
        # What joins comes first, since it makes the surplus that lets others leave.
        moves.sort(key=lambda move: (not move.joins, -self._profit(move, slots)))
        before, verdicts = slots, []
        for move in moves:
            verdict = self._weigh(move, slots, busy)
            verdicts.append(verdict)
            if verdict.approved:
                slots, busy = move.apply(slots), busy + _size(move)
        if slots == before and len(moves) > 1:
            # Parts may break a rule, or cost egress, that the whole plan does not.
            together = self._weigh(whole, slots, busy)
            if together.approved:
                return whole.apply(slots), (together,)
        return slots, tuple(verdicts)

    def _weigh(self, move: Move, slots: tuple[Slot, ...], busy: int) -> Verdict:
        """Return the verdict on one move for money: it must pay, have dwelt, and break no rule."""
        verdict = self._verdict(MoveKind.SAVING, move, slots)
        factor = self.case.policy.switch_factor
        hindrance = self._hindrance(move, slots, busy)
        pays = verdict.saving_usd > factor * verdict.disruption_usd
        approved = pays and hindrance is None
        word = "move" if approved else "stay" if hindrance is None or not pays else f"stay, {hindrance}"
        reason = (
            f"{_in_words(move)}: saves {verdict.saving_usd:.2f} USD over {self.case.policy.horizon_h:g} h, "
            f"disruption {verdict.disruption_usd:.2f} x {factor:g}: {word}"
        )
        return verdict.model_copy(update={"approved": approved, "reason": reason})

    def _hindrance(self, move: Move, slots: tuple[Slot, ...], busy: int) -> str | None:
        """Return why a move that pays may not be made now, or None."""
        policy = self.case.policy
        for slot in move.leaves:
            ready_at_s = self.nodes[slot.name].ready_at_s
            dwelt_s = 0.0 if ready_at_s is None else self.case.now_s - ready_at_s
            if dwelt_s < policy.min_dwell_s:
                return f"{slot.name} has run {dwelt_s / 60:.0f} of {policy.min_dwell_s / 60:.0f} min"
        if busy and busy + _size(move) > policy.max_moves_at_once:
            return f"{busy} of at most {policy.max_moves_at_once} machines are being replaced"
        new = self.worth.broken(move.apply(slots))
        words = [text for rule, text in new.items() if rule not in self.worth.broken(slots)]
        return f"the fleet then {words[0]}" if words else None

    def _profit(self, move: Move, slots: tuple[Slot, ...]) -> float:
        saving, disruption = self._saving_usd(move, slots), self._disruption_usd(move, slots)
        return saving - self.case.policy.switch_factor * disruption

    def _saving_usd(self, move: Move, slots: tuple[Slot, ...]) -> float:
        """Return dollars saved over the horizon, at equal throughput where throughput is the objective."""
        after = move.apply(slots)
        spent = self.worth.usd_per_hour(slots)
        if self.case.policy.objective is Objective.MAX_THROUGHPUT and self.worth.throughput(slots) > 0:
            spent *= self.worth.throughput(after) / self.worth.throughput(slots)
        return (spent - self.worth.usd_per_hour(after)) * self.case.policy.horizon_h

    def _disruption_usd(self, move: Move, slots: tuple[Slot, ...]) -> float:
        """Return what a move costs once.

        New machines are paid while they start and the old ones still work (make before break), leaving machines while
        they finish what they hold, and the whole fleet while a gang changes.
        """
        calibration, offers = self.case.market.calibration, self.problem.offers
        seconds = sum(self.worth.price(slot) * startup_s(offers.get(slot.offer_id), calibration) for slot in move.joins)
        seconds += sum(self.worth.price(slot) * _finish_s(slot) for slot in move.leaves)
        if move.gang:
            seconds += self.worth.usd_per_hour(slots) * self._standstill_s(move, slots)
        return seconds / 3600.0

    def _standstill_s(self, move: Move, slots: tuple[Slot, ...]) -> float:
        """Return how long nobody trains: while the state moves, or a new gang resumes from its checkpoint."""
        offer = self.problem.offers.get(move.gang[0].offer_id)
        if offer is None or not self.case.can_resize or not is_resize(slots, move.gang):
            return self.case.market.calibration.restart_s
        before, after = (next(slot.trainer for slot in gang if slot.trainer) for gang in (slots, move.gang))
        gb_per_s = forecast_gb_per_s(offer, offer, self.case.market.network)
        return resize_s(self.case.workload.model, before.formation, after.formation, gb_per_s)

    def _verdict(self, kind: MoveKind, move: Move, slots: tuple[Slot, ...]) -> Verdict:
        return Verdict(
            kind=kind,
            approved=False,
            launches=move.joins,
            releases=tuple(self.nodes[slot.name].id for slot in move.leaves),
            saving_usd=self._saving_usd(move, slots),
            disruption_usd=self._disruption_usd(move, slots),
            reason="",
        )

    def repriced(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the slots at today's prices: this re-plan is the new baseline of the price trigger."""
        return tuple(slot.model_copy(update={"usd_per_hour": self.worth.price(slot)}) for slot in slots)


def _finish_s(slot: Slot) -> float:
    """Return how long a machine that leaves has yet to work on what it has begun: its samples, or a step."""
    if slot.trainer is not None:
        return slot.trainer.step_s
    return slot.rollout.generation_s if slot.rollout is not None else 0.0


def _size(move: Move) -> int:
    """Return how many machines a move replaces; the gang counts as one."""
    return sum(1 for slot in move.leaves if slot.role is Role.ROLLOUT) + (1 if move.gang else 0)


def _in_words(move: Move) -> str:
    parts = []
    if move.joins:
        parts.append("launch " + ", ".join(f"{slot.name} ({slot.offer_id})" for slot in move.joins))
    if move.leaves:
        parts.append("release " + ", ".join(slot.name for slot in move.leaves))
    return ", ".join(parts)
