"""build_report: what a run did, from what was recorded while it ran. Pure; the planner's forecast is not among it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

from hexcloud.controller.gang import BROKEN_GANG
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import LIVE, Node, NodeStatus
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.metrics import StepRow
from hexcloud.domain.plan import Role
from hexcloud.domain.report import BaselineRow, FleetChangeRow, LossRow, ReplanRow, Report, WasteRow
from hexcloud.domain.run import RunRecord, RunState

BASELINES = "baselines"
"""Kind of the event that keeps what simpler buyers would have paid when the run began."""
FIRST_PLAN = "this run's first plan"
"""Among them: what they are compared with, in the same terms."""
WINDOW_S = 30.0
"""Wall seconds after a change of the fleet in which the trainer's idle time is looked at."""
SECONDS_PER_HOUR = 3600.0

_CHANGES = {"node_ready": "added", "node_draining": "removed", "node_lost": "lost", "node_interrupted": "lost"}
_REPAIRS = frozenset({"start", "loss", "capacity"})
"""Triggers whose moves fill the fleet; every other move is for money."""


@dataclass(frozen=True)
class RunFacts:
    """Everything recorded of a run, as store and metrics file hold it."""

    run: RunRecord
    events: tuple[Event, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    nodes: tuple[Node, ...] = ()
    view: RunView | None = None
    steps: tuple[StepRow, ...] = ()
    """In the order in which they were published, abandoned ones included."""

    @property
    def began_s(self) -> float:
        """The run clock at the run's beginning; a resumed run's clock began anew, its history did not."""
        return min([self.run.clock_origin_run_s, *(event.at_s for event in self.events)])

    @property
    def end_wall_s(self) -> float:
        """Return until when the run was meant to train, wall seconds.

        The last step of all; else when it began to stop; of a run that goes on, the last thing known of it.
        """
        run, last_s = self.run, max((row.wall_s for row in self.steps), default=0.0)
        if any(row.version >= run.spec.steps for row in self.steps):
            return last_s
        stops = [event.wall_s for event in self.of_kind("run_stopping") if event.wall_s >= run.clock_origin_wall_s]
        if stops or run.state in {RunState.DONE, RunState.FAILED}:
            return max([last_s, *stops[-1:]])
        billed_s = (run.clock_origin_wall_s + (e.to_s - run.clock_origin_run_s) / run.clock_scale for e in self.ledger)
        return max([last_s, *(event.wall_s for event in self.events), *billed_s])

    def hours(self, at_s: float) -> float:
        """Return run-clock hours since the run began."""
        return (at_s - self.began_s) / SECONDS_PER_HOUR

    def of_kind(self, *kinds: str) -> tuple[Event, ...]:
        """Return the events of these kinds, in order."""
        return tuple(event for event in self.events if event.kind in kinds)


def build_report(facts: RunFacts) -> Report:
    """Return the report of a run, also of one that is still going on or never trained a step."""
    run, view, kept = facts.run, facts.view, kept_steps(facts.steps, facts.view)
    ages: Counter[int] = sum((Counter(row.staleness) for row in facts.steps), Counter())
    target = run.policy.target_samples_per_s
    replans = tuple(_replan(event, facts) for event in facts.of_kind("replan"))
    rivals = facts.of_kind(BASELINES)[-1:]
    end_s = facts.end_wall_s
    idle = Idle(facts.steps, end_s)
    return Report(
        run=run.id,
        state=run.state.value,
        steps=len(kept),
        eta=run.workload.eta,
        max_staleness=max(ages, default=0),
        mean_staleness=sum(age * count for age, count in ages.items()) / max(1, ages.total()),
        staleness_histogram=dict(sorted(ages.items())),
        dropped_samples=max([view.dropped_samples if view else 0, *(row.dropped_samples for row in facts.steps)]),
        accuracy_before=view.accuracy_before if view else None,
        accuracy_after=view.accuracy_after if view else None,
        reward_first_fifth=_mean_reward(kept[: _fifth(kept)]),
        reward_last_fifth=_mean_reward(kept[-_fifth(kept) :]),
        target_tokens_per_s=target and target * run.workload.tokens_per_sample,
        achieved_tokens_per_s=achieved_tokens_per_s(run, kept, end_s),
        clock_scale=run.clock_scale,
        overlap_share=view.overlap_share if view else 0.0,
        spent_usd=sum(entry.usd for entry in facts.ledger),
        spent_by_kind=_spent_by_kind(facts.ledger),
        waste=waste_of(facts.nodes, facts.ledger),
        nodes_left=sum(node.status is not NodeStatus.GONE for node in facts.nodes),
        replans=replans,
        moves=sum(row.verdict == "moved" and not set(row.trigger.split("+")) <= _REPAIRS for row in replans),
        losses=tuple(_loss(event, facts, idle) for event in _losses(facts)),
        fleet_changes=_fleet_changes(facts, idle),
        baselines=tuple(row for event in rivals for row in read_baselines(event)),
        first_usd_per_hour=read_first_price(rivals[0]) if rivals else None,
        usd_per_hour=replans[-1].usd_per_hour_after if replans else 0.0,
        output=run.output,
    )


def kept_steps(steps: Iterable[StepRow], view: RunView | None = None) -> tuple[StepRow, ...]:
    """Return the rows of the versions that stand, in order: a recovery abandons what came after its checkpoint.

    The view tells of a recovery that has trained no step yet.
    """
    kept: list[StepRow] = []
    for row in steps:
        while kept and kept[-1].version >= row.version:
            kept.pop()
        kept.append(row)
    while view and kept and kept[-1].epoch < view.epoch and kept[-1].version > view.version:
        kept.pop()
    return tuple(kept)


def achieved_tokens_per_s(run: RunRecord, kept: tuple[StepRow, ...], end_s: float = 0.0) -> float:
    """Return trained tok/s on the run clock: samples after the first step over wall time times the one scale.

    Time runs until `end_s` (wall seconds) when that is after the last step: a run that stood still was slow.
    Of a resumed run only what came after its resumption counts: in between nobody was meant to work.
    """
    rows = [row for row in kept if row.wall_s >= run.clock_origin_wall_s]
    wall_s = max(rows[-1].wall_s, end_s) - rows[0].wall_s if rows else 0.0
    if wall_s <= 0:
        return 0.0
    samples = sum(row.samples for row in rows[1:])
    return samples / (wall_s * run.clock_scale) * run.workload.tokens_per_sample


class Idle:
    """When the trainer did not train between its first step and the run's end. Wall seconds.

    All but the work of published steps counts: waits for data, standstills, recoveries. So do publishing a version and
    asking for the next batch, some 10 ms a step, in every window and in their median alike.
    """

    def __init__(self, steps: tuple[StepRow, ...], end_s: float = 0.0) -> None:
        self._moments = [row.wall_s for row in steps]
        self._end_s = max([end_s, *self._moments])
        self._busy = [
            (max(row.wall_s - row.busy_s, before), row.wall_s)
            for before, row in zip([0.0, *self._moments], steps, strict=False)
        ]
        self._sums = [0.0, *accumulate(end - begin for begin, end in self._busy)]

    def waited_s(self, from_s: float) -> float:
        """Return the idle time in the window that begins at a moment."""
        if not self._moments:
            return 0.0
        begin, end = max(from_s, self._moments[0]), min(from_s + WINDOW_S, self._end_s)
        return max(0.0, end - begin - self._busy_until(end) + self._busy_until(begin)) if end > begin else 0.0

    def is_within(self, at_s: float) -> bool:
        """Did the run train at this moment: after its first step and before its end?"""
        return bool(self._moments) and self._moments[0] <= at_s <= self._end_s

    def _busy_until(self, at_s: float) -> float:
        """Return the seconds of work before a moment."""
        index = bisect_right(self._moments, at_s)
        running_s = at_s - self._busy[index][0] if index < len(self._busy) else 0.0
        return self._sums[index] + max(0.0, running_s)

    def median_s(self) -> float:
        """Return the median idle time over all whole windows, one beginning at each step; a short run has one."""
        whole = [moment for moment in self._moments if moment + WINDOW_S <= self._end_s]
        return median(self.waited_s(moment) for moment in whole or self._moments[:1] or [0.0])


def baselines_event(rows: tuple[BaselineRow, ...], first_usd_per_hour: float, at_s: float, wall_s: float) -> Event:
    """Return the event that keeps the baselines with the run, and the price of its first plan in the same terms."""
    prices = {row.name: row.usd_per_hour for row in rows} | {FIRST_PLAN: first_usd_per_hour}
    return Event(at_s=at_s, wall_s=wall_s, kind=BASELINES, text="what simpler buyers would pay, USD/h", fields=prices)


def read_baselines(event: Event) -> tuple[BaselineRow, ...]:
    """Return the baselines that `baselines_event` wrote."""
    return tuple(
        BaselineRow(name=name, usd_per_hour=_price(event, name)) for name in event.fields if name != FIRST_PLAN
    )


def read_first_price(event: Event) -> float | None:
    """Return the first plan's price that `baselines_event` wrote, USD/h."""
    return _price(event, FIRST_PLAN)


def _price(event: Event, name: str) -> float | None:
    price = event.fields.get(name)
    return float(price) if isinstance(price, int | float) else None


def _replan(event: Event, facts: RunFacts) -> ReplanRow:
    fields = event.fields
    return ReplanRow(
        time_h=facts.hours(event.at_s),
        trigger=str(fields.get("trigger", "")),
        verdict=str(fields.get("verdict", "")),
        reason=str(fields.get("reason", event.text)),
        usd_per_hour_before=float(fields.get("usd_per_hour_before") or 0.0),
        usd_per_hour_after=float(fields.get("usd_per_hour_after") or 0.0),
    )


def _losses(facts: RunFacts) -> tuple[Event, ...]:
    """Return the losses; rollout nodes that leave after the last step of a finished run have only gone home."""
    lost = facts.of_kind("node_lost", "node_interrupted")
    if facts.view is None or facts.view.phase is not RunPhase.DONE or not facts.steps:
        return lost
    return tuple(event for event in lost if event.wall_s <= facts.steps[-1].wall_s)


def _loss(event: Event, facts: RunFacts, idle: Idle) -> LossRow:
    return LossRow(
        node=event.node,
        time_h=facts.hours(event.at_s),
        cause=str(event.fields.get("cause") or event.text),
        trainer_waited_s=idle.waited_s(event.wall_s),
    )


def _fleet_changes(facts: RunFacts, idle: Idle) -> tuple[FleetChangeRow, ...]:
    rollout = {node.id for node in facts.nodes if node.role is Role.ROLLOUT}
    events = (event for event in facts.of_kind(*_CHANGES) if event.node in rollout and idle.is_within(event.wall_s))
    median_s = idle.median_s()
    return tuple(
        FleetChangeRow(
            kind=_CHANGES[event.kind],
            node=event.node,
            time_h=facts.hours(event.at_s),
            idle_30s_after=idle.waited_s(event.wall_s),
            median_idle_30s=median_s,
        )
        for event in events
    )


def _spent_by_kind(ledger: tuple[LedgerEntry, ...]) -> dict[str, float]:
    spent: defaultdict[str, float] = defaultdict(float)
    for entry in ledger:
        spent[entry.kind.value] += entry.usd
    return dict(sorted(spent.items()))


def waste_of(nodes: tuple[Node, ...], ledger: tuple[LedgerEntry, ...]) -> tuple[WasteRow, ...]:
    """Return the bills of machines that ended before they, or a member of their gang, ever came up."""
    bills: defaultdict[str, float] = defaultdict(float)
    for entry in ledger:
        bills[entry.node_id] += entry.usd
    gangs: defaultdict[tuple[Role, str, float], list[Node]] = defaultdict(list)
    for node in nodes:
        one = f"{node.offer_id} {node.id if node.gang == 1 else node.head}"
        gangs[node.role, one, node.requested_at_s].append(node)
    rows = []
    for gang in gangs.values():
        absent = [node for node in gang if node.ready_at_s is None and node.status not in LIVE]
        usd = sum(bills[node.id] for node in gang)
        if absent and usd > 0:
            first = next((node for node in absent if node.cause != BROKEN_GANG), absent[0])
            rows.append(
                WasteRow(nodes=tuple(node.id for node in gang), offer_id=first.offer_id, cause=first.cause, usd=usd)
            )
    return tuple(rows)


def _fifth(rows: tuple[StepRow, ...]) -> int:
    return max(1, len(rows) // 5)


def _mean_reward(rows: tuple[StepRow, ...]) -> float:
    return fmean(row.reward for row in rows) if rows else 0.0
