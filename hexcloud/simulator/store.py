"""SimStore: the run's memory in dictionaries; outlives a controller, not the process."""

from collections.abc import Iterator
from contextlib import contextmanager

from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.messages import RunView
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import ExecutionPlan, Placement
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.simulator.faults import Faults


class SimStore:
    """Implements ports.Store. Faults named `store` strike any call; public attributes let a check look past them."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._runs: dict[RunId, RunRecord] = {}
        self.node_records: dict[NodeId, Node] = {}
        self.plans: dict[RunId, tuple[ExecutionPlan, Placement]] = {}
        self.history: list[tuple[RunId, Event]] = []
        self.entries: list[tuple[RunId, LedgerEntry]] = []
        self._blocks: dict[tuple[RunId, OfferId], tuple[float, str]] = {}
        self._views: dict[RunId, RunView] = {}

    def save_run(self, run: RunRecord) -> None:
        """Insert or replace a run."""
        with self._call():
            self._runs[run.id] = run

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run."""
        with self._call():
            return self._runs.get(run_id)

    def runs(self) -> tuple[RunRecord, ...]:
        """Return all runs, newest first."""
        with self._call():
            return tuple(sorted(self._runs.values(), key=lambda run: -run.created_wall_s))

    def set_run_state(self, run_id: RunId, state: RunState, reason: str) -> None:
        """Change a run's state."""
        with self._call():
            self._runs[run_id] = self._runs[run_id].model_copy(update={"state": state, "reason": reason})

    def save_node(self, node: Node) -> None:
        """Insert or replace a node."""
        with self._call():
            self.node_records[node.id] = node

    def nodes(self, run_id: RunId) -> tuple[Node, ...]:
        """Return all nodes of a run ever recorded, in order of request."""
        with self._call():
            return tuple(node for node in self.node_records.values() if node.run_id == run_id)

    def save_plan(self, run_id: RunId, plan: ExecutionPlan, placement: Placement) -> None:
        """Remember the accepted placement and the plan it comes from."""
        with self._call():
            self.plans[run_id] = plan, placement

    def plan(self, run_id: RunId) -> tuple[ExecutionPlan, Placement] | None:
        """Return the accepted plan."""
        with self._call():
            return self.plans.get(run_id)

    def add_event(self, run_id: RunId, event: Event) -> None:
        """Append to the run's history."""
        with self._call():
            self.history.append((run_id, event))

    def events(self, run_id: RunId, after: int = 0) -> tuple[tuple[int, Event], ...]:
        """Return (sequence number, event) with a number over `after`."""
        with self._call():
            numbered = enumerate(self.history, start=1)
            return tuple((number, event) for number, (run, event) in numbered if run == run_id and number > after)

    def last_event(self, run_id: RunId) -> Event | None:
        """Return the event added last, or None."""
        with self._call():
            return next((event for run, event in reversed(self.history) if run == run_id), None)

    def add_ledger(self, run_id: RunId, entries: tuple[LedgerEntry, ...]) -> None:
        """Append spans of spend, all or none."""
        with self._call():
            self.entries.extend((run_id, entry) for entry in entries)

    def ledger(self, run_id: RunId) -> tuple[LedgerEntry, ...]:
        """Return all spans of a run."""
        with self._call():
            return tuple(entry for run, entry in self.entries if run == run_id)

    def spent_usd(self, run_id: RunId) -> float:
        """Return the sum of the ledger."""
        with self._call():
            return sum(entry.usd for run, entry in self.entries if run == run_id)

    def save_block(self, run_id: RunId, offer_id: OfferId, until_s: float, reason: str) -> None:
        """Remember that a pool refused us, until a run-clock moment."""
        with self._call():
            self._blocks[run_id, offer_id] = until_s, reason

    def blocks(self, run_id: RunId, now_s: float) -> dict[OfferId, str]:
        """Return the pools still blocked, with the reason."""
        with self._call():
            return {
                offer_id: reason
                for (run, offer_id), (until_s, reason) in self._blocks.items()
                if run == run_id and until_s > now_s
            }

    def save_view(self, run_id: RunId, view: RunView) -> None:
        """Keep the last word of the coordinator."""
        with self._call():
            self._views[run_id] = view

    def view(self, run_id: RunId) -> RunView | None:
        """Return it."""
        with self._call():
            return self._views.get(run_id)

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self.faults.around("store"):
            yield
