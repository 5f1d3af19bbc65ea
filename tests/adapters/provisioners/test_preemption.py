from pathlib import Path

from hexcloud.adapters.markets.trace import Trace, TraceEvent, TraceKind
from hexcloud.adapters.provisioners.preemption import Preemptions
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.offer import OfferId

ALIVE = {NodeId(name): OfferId(offer) for name, offer in [("b", "x/spot"), ("a", "x/spot"), ("c", "y/spot")]}


def preemptions(path: Path, *events: tuple[float, str, int]) -> Preemptions:
    taken = tuple(TraceEvent(at_s=at_s, kind=TraceKind.PREEMPT, offer=offer, count=n) for at_s, offer, n in events)
    return Preemptions(path / "preempted.json", Trace(name="test", events=taken))


def test_what_happened_before_the_first_look_takes_nothing(tmp_path: Path) -> None:
    played = preemptions(tmp_path, (5.0, "*", 3))
    assert played.victims(5.0, ALIVE) == ()
    assert played.victims(9.0, ALIVE) == ()


def test_an_event_takes_its_count_from_its_pools_in_order_of_id(tmp_path: Path) -> None:
    played = preemptions(tmp_path, (5.0, "x/*", 1), (6.0, "*", 2))
    played.victims(0.0, ALIVE)
    assert played.victims(5.0, ALIVE) == ("a",)
    assert played.victims(6.0, ALIVE) == ("a", "b", "c")


def test_a_pool_without_nodes_loses_none_later_either(tmp_path: Path) -> None:
    played = preemptions(tmp_path, (5.0, "x/*", 1))
    played.victims(0.0, {})
    assert played.victims(5.0, {}) == ()
    assert played.victims(6.0, ALIVE) == ()


def test_a_restart_names_the_same_victims_and_no_more(tmp_path: Path) -> None:
    events = (5.0, "x/*", 1)
    preemptions(tmp_path, events).victims(0.0, ALIVE)
    assert preemptions(tmp_path, events).victims(8.0, ALIVE) == ("a",)
    assert preemptions(tmp_path, events).victims(9.0, ALIVE) == ("a",)
