"""SqliteStore: what a controller must not forget, in one file that outlives it. Every call is one transaction."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Row, Select, Table, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from hexcloud.adapters.store.engine import open_engine, reading, writing
from hexcloud.adapters.store.schema import BLOCKS, EVENTS, LEDGER, NODES, PLANS, RUNS, VIEWS
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, RunId
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.messages import RunView
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import ExecutionPlan, Placement
from hexcloud.domain.run import RunRecord, RunState

T = TypeVar("T")


class SqliteStore:
    """Implements ports.Store. Any number of processes may read while one writes; every failure is a StoreError."""

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(path)
        self.path = path.resolve()

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        self._engine.dispose()

    def save_run(self, run: RunRecord) -> None:
        """Insert or replace a run."""
        row = {"id": run.id, "created_wall_s": run.created_wall_s, "body": run.model_dump_json()}
        self._put(RUNS, ("id",), row)

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run, or None."""
        query = select(RUNS.c.body).where(RUNS.c.id == run_id)
        return self._first(query, lambda row: RunRecord.model_validate_json(row[0]))

    def runs(self) -> tuple[RunRecord, ...]:
        """Return all runs, newest first."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(RUNS.c.body).order_by(RUNS.c.created_wall_s.desc(), RUNS.c.id))
            return tuple(RunRecord.model_validate_json(body) for body in bodies)

    def set_run_state(self, run_id: RunId, state: RunState, reason: str) -> None:
        """Change a run's state and nothing else of it. Raises StoreError when there is no such run."""
        with writing(self._engine) as connection:
            body = connection.execute(select(RUNS.c.body).where(RUNS.c.id == run_id)).scalar_one()
            run = RunRecord.model_validate_json(body).model_copy(update={"state": state, "reason": reason})
            connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(body=run.model_dump_json()))

    def save_node(self, node: Node) -> None:
        """Insert or replace a node; it keeps its place in the order of request."""
        self._put(NODES, ("id",), {"id": node.id, "run_id": node.run_id, "body": node.model_dump_json()})

    def nodes(self, run_id: RunId) -> tuple[Node, ...]:
        """Return all nodes of a run ever recorded, in order of request."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(NODES.c.body).where(NODES.c.run_id == run_id).order_by(NODES.c.number))
            return tuple(Node.model_validate_json(body) for body in bodies)

    def save_plan(self, run_id: RunId, plan: ExecutionPlan, placement: Placement) -> None:
        """Remember the accepted placement and the plan it comes from; the one before is replaced."""
        row = {"run_id": run_id, "plan": plan.model_dump_json(), "placement": placement.model_dump_json()}
        self._put(PLANS, ("run_id",), row)

    def plan(self, run_id: RunId) -> tuple[ExecutionPlan, Placement] | None:
        """Return the accepted plan, or None."""
        query = select(PLANS.c.plan, PLANS.c.placement).where(PLANS.c.run_id == run_id)
        return self._first(
            query, lambda row: (ExecutionPlan.model_validate_json(row[0]), Placement.model_validate_json(row[1]))
        )

    def add_event(self, run_id: RunId, event: Event) -> None:
        """Append to the run's history."""
        with writing(self._engine) as connection:
            connection.execute(insert(EVENTS).values(run_id=run_id, body=event.model_dump_json()))

    def events(self, run_id: RunId, after: int = 0) -> tuple[tuple[int, Event], ...]:
        """Return (sequence number, event) with a number over `after`, oldest first."""
        query = select(EVENTS.c.number, EVENTS.c.body).where(EVENTS.c.run_id == run_id, EVENTS.c.number > after)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(EVENTS.c.number))
            return tuple((number, Event.model_validate_json(body)) for number, body in rows)

    def last_event(self, run_id: RunId) -> Event | None:
        """Return the event added last, or None."""
        query = select(EVENTS.c.body).where(EVENTS.c.run_id == run_id).order_by(EVENTS.c.number.desc()).limit(1)
        return self._first(query, lambda row: Event.model_validate_json(row[0]))

    def add_ledger(self, run_id: RunId, entries: tuple[LedgerEntry, ...]) -> None:
        """Append spans of spend, all or none."""
        rows = [{"run_id": run_id, "usd": entry.usd, "body": entry.model_dump_json()} for entry in entries]
        if not rows:
            return
        with writing(self._engine) as connection:
            connection.execute(insert(LEDGER), rows)

    def ledger(self, run_id: RunId) -> tuple[LedgerEntry, ...]:
        """Return all spans of a run, in the order they were added."""
        query = select(LEDGER.c.body).where(LEDGER.c.run_id == run_id).order_by(LEDGER.c.number)
        with reading(self._engine) as connection:
            return tuple(LedgerEntry.model_validate_json(body) for body in connection.scalars(query))

    def spent_usd(self, run_id: RunId) -> float:
        """Return the sum of the ledger, USD."""
        with reading(self._engine) as connection:
            total: float = connection.execute(
                select(func.coalesce(func.sum(LEDGER.c.usd), 0.0)).where(LEDGER.c.run_id == run_id)
            ).scalar_one()
            return total

    def save_block(self, run_id: RunId, offer_id: OfferId, until_s: float, reason: str) -> None:
        """Remember that a pool refused us, until a run-clock moment (seconds since the epoch)."""
        row = {"run_id": run_id, "offer_id": offer_id, "until_s": until_s, "reason": reason}
        self._put(BLOCKS, ("run_id", "offer_id"), row)

    def blocks(self, run_id: RunId, now_s: float) -> dict[OfferId, str]:
        """Return the pools still blocked at a run-clock moment, with the reason."""
        query = select(BLOCKS.c.offer_id, BLOCKS.c.reason).where(BLOCKS.c.run_id == run_id, BLOCKS.c.until_s > now_s)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(BLOCKS.c.offer_id))
            return {OfferId(offer_id): reason for offer_id, reason in rows}

    def save_view(self, run_id: RunId, view: RunView) -> None:
        """Keep the last word of the coordinator; the one before is replaced."""
        self._put(VIEWS, ("run_id",), {"run_id": run_id, "body": view.model_dump_json()})

    def view(self, run_id: RunId) -> RunView | None:
        """Return the last word of the coordinator, or None."""
        query = select(VIEWS.c.body).where(VIEWS.c.run_id == run_id)
        return self._first(query, lambda row: RunView.model_validate_json(row[0]))

    def _first(self, query: Select[*tuple[Any, ...]], read: Callable[[Row[*tuple[Any, ...]]], T]) -> T | None:
        with reading(self._engine) as connection:
            row = connection.execute(query).first()
            return None if row is None else read(row)

    def _put(self, table: Table, key: tuple[str, ...], row: Mapping[str, object]) -> None:
        changed = {name: value for name, value in row.items() if name not in key}
        with writing(self._engine) as connection:
            connection.execute(upsert(table).values(row).on_conflict_do_update(index_elements=key, set_=changed))
