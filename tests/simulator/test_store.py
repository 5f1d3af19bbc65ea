import pytest

from hexcloud.domain.errors import StoreError
from hexcloud.domain.event import Event
from hexcloud.domain.offer import OfferId
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.faults import Fault, Faults
from hexcloud.simulator.store import SimStore
from hexcloud.simulator.world import small_run

RUN = small_run(VirtualClock(), Policy())


def test_a_block_ends_at_its_moment() -> None:
    store = SimStore()
    store.save_block(RUN.id, OfferId("a"), until_s=100.0, reason="sold out")
    assert store.blocks(RUN.id, now_s=99.0) == {"a": "sold out"}
    assert store.blocks(RUN.id, now_s=100.0) == {}


def test_events_are_numbered_in_order() -> None:
    store = SimStore()
    for text in ("one", "two", "three"):
        store.add_event(RUN.id, Event(at_s=0, wall_s=0, kind="x", text=text))
    assert [(number, event.text) for number, event in store.events(RUN.id, after=1)] == [(2, "two"), (3, "three")]
    last = store.last_event(RUN.id)
    assert last is not None and last.text == "three"


def test_a_run_keeps_its_state_and_reason() -> None:
    store = SimStore()
    store.save_run(RUN)
    store.set_run_state(RUN.id, RunState.STOPPING, "budget")
    saved = store.run(RUN.id)
    assert saved is not None
    assert (saved.state, saved.reason) == (RunState.STOPPING, "budget")
    assert store.runs() == (saved,)


def test_a_fault_before_the_call_saves_nothing() -> None:
    store = SimStore(Faults((Fault(0, StoreError("locked"), "store"),)))
    with pytest.raises(StoreError):
        store.save_run(RUN)
    assert store.run(RUN.id) is None
