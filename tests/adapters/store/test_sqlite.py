import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.errors import StoreError
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, RunId
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.messages import RunView
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import ExecutionPlan
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.ports import Store

NOBODY = RunId("nobody")


def test_a_store_that_holds_nothing_says_so(store: Store) -> None:
    assert store.runs() == ()
    assert store.run(NOBODY) is None
    assert store.plan(NOBODY) is None
    assert store.view(NOBODY) is None
    assert store.nodes(NOBODY) == ()
    assert store.events(NOBODY) == ()
    assert store.last_event(NOBODY) is None
    assert store.ledger(NOBODY) == ()
    assert store.blocks(NOBODY, 0.0) == {}
    assert store.spent_usd(NOBODY) == 0.0


def test_runs_come_back_whole_and_newest_first(store: Store, run: RunRecord) -> None:
    newer = run.model_copy(update={"id": RunId("main-2"), "created_wall_s": 200.0})
    store.save_run(newer)
    store.save_run(run)
    assert store.run(run.id) == run
    assert store.runs() == (newer, run)


def test_a_change_of_state_changes_nothing_else(store: Store, run: RunRecord, node: Node) -> None:
    store.save_run(run)
    store.save_node(node)
    store.set_run_state(run.id, RunState.STOPPING, "Ctrl-C")
    assert store.run(run.id) == run.model_copy(update={"state": RunState.STOPPING, "reason": "Ctrl-C"})
    store.save_run(run)
    assert store.nodes(run.id) == (node,)


def test_a_node_keeps_its_place_when_it_changes(store: Store, run: RunRecord, node: Node) -> None:
    store.save_run(run)
    later = node.model_copy(update={"id": NodeId("main-1.a-later-one.0")})
    ready = node.model_copy(update={"status": NodeStatus.READY, "ready_at_s": 9.0})
    store.save_node(node)
    store.save_node(later)
    store.save_node(ready)
    assert store.nodes(run.id) == (ready, later)


def test_the_newest_plan_replaces_the_one_before(store: Store, run: RunRecord, plan: ExecutionPlan) -> None:
    store.save_run(run)
    store.save_plan(run.id, plan, plan.placement)
    smaller = plan.placement.model_copy(update={"slots": plan.placement.slots[:1]})
    store.save_plan(run.id, plan, smaller)
    assert store.plan(run.id) == (plan, smaller)


def test_events_are_numbered_and_can_be_followed(store: Store, run: RunRecord) -> None:
    store.save_run(run)
    first, second = (
        Event(at_s=1.0, wall_s=2.0, kind=kind, text="x", fields={"usd": 1.5, "moved": True, "why": None, "n": 3})
        for kind in ("node_requested", "node_ready")
    )
    store.add_event(run.id, first)
    ((number, event),) = store.events(run.id)
    assert event == first
    store.add_event(run.id, second)
    assert [event for _, event in store.events(run.id, after=number)] == [second]
    assert store.last_event(run.id) == second


def test_the_ledger_sums_up(store: Store, run: RunRecord, entry: LedgerEntry) -> None:
    store.save_run(run)
    store.add_ledger(run.id, ())
    store.add_ledger(run.id, (entry, entry.model_copy(update={"usd": 0.1})))
    assert len(store.ledger(run.id)) == 2
    assert store.ledger(run.id)[0] == entry
    assert store.spent_usd(run.id) == pytest.approx(0.5)


def test_a_block_holds_until_its_moment_and_may_be_prolonged(store: Store, run: RunRecord) -> None:
    store.save_run(run)
    pool = OfferId("aws/us-east-1/use1-az1/g5.xlarge/spot")
    store.save_block(run.id, pool, 100.0, "sold out")
    assert store.blocks(run.id, 99.0) == {pool: "sold out"}
    assert store.blocks(run.id, 100.0) == {}
    store.save_block(run.id, pool, 200.0, "quota")
    assert store.blocks(run.id, 150.0) == {pool: "quota"}


def test_the_last_view_is_kept(store: Store, run: RunRecord, view: RunView) -> None:
    store.save_run(run)
    store.save_view(run.id, view)
    later = view.model_copy(update={"version": 4})
    store.save_view(run.id, later)
    assert store.view(run.id) == later


def test_nothing_is_stored_for_a_run_that_does_not_exist(store: Store, node: Node, entry: LedgerEntry) -> None:
    with pytest.raises(StoreError):
        store.save_node(node)
    with pytest.raises(StoreError):
        store.add_ledger(NOBODY, (entry,))
    with pytest.raises(StoreError):
        store.set_run_state(NOBODY, RunState.DONE, "")
    assert store.nodes(node.run_id) == ()


def test_two_stores_of_one_file_share_one_memory(store: SqliteStore, run: RunRecord) -> None:
    store.save_run(run)
    other = SqliteStore(store.path)
    assert other.run(run.id) == run
