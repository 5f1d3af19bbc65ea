import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Heartbeat, LinkReport, Register
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator_nodes import (
    MAX_PEERS,
    MAX_STRIKES,
    PROBE_AGAIN_S,
    RATE_WINDOW_S,
    KnownNode,
    NodeTable,
)


def registered(table: NodeTable, name: str, role: Role = Role.ROLLOUT, now_s: float = 0.0) -> KnownNode:
    return table.register(Register(node_id=NodeId(name), role=role, slots=4, address=f"{name}:1"), now_s)


def beat(name: str, tokens: int = 0) -> Heartbeat:
    return Heartbeat(node_id=NodeId(name), epoch=0, version=3, running=2, generated_tokens=tokens)


def test_the_token_rate_is_over_recent_heartbeats_only() -> None:
    node = registered(NodeTable(), "a")
    node.note(beat("a", 0), 0.0)
    assert node.tokens_per_s == 0.0
    for second in range(1, 31):
        node.note(beat("a", 1000 if second < 20 else 1000 + 50 * (second - 19)), float(second))
    assert node.tokens_per_s == pytest.approx(50.0)
    assert len(node.generated) <= RATE_WINDOW_S + 1


def test_a_node_is_silent_once_until_it_speaks_again() -> None:
    table = NodeTable()
    node = registered(table, "a", now_s=0.0)
    assert table.silence(5.0, after_s=5.0) == ()
    assert table.silence(5.1, after_s=5.0) == ("a",)
    assert table.silence(9.0, after_s=5.0) == ()
    node.heard_at_s, node.is_silent = 10.0, False
    assert table.silence(16.0, after_s=5.0) == ("a",)


def test_registering_again_keeps_what_is_known() -> None:
    table = NodeTable()
    registered(table, "a").note(beat("a", 10), 1.0)
    table.drain(NodeId("a"))
    again = registered(table, "a", now_s=2.0)
    assert (again.version, again.running, again.is_draining, again.heard_at_s) == (3, 2, True, 2.0)


def test_a_node_told_to_drain_before_it_registers_drains() -> None:
    table = NodeTable()
    table.drain(NodeId("a"))
    assert registered(table, "a").is_draining


def test_a_node_is_drained_when_it_holds_nothing_any_more() -> None:
    table = NodeTable()
    node = registered(table, "a")
    assert not table.view(node, held=0, now_s=0.0).drained
    table.drain(node.id)
    assert not table.view(node, held=1, now_s=0.0).drained
    assert table.view(node, held=0, now_s=0.0).drained


def test_a_nodes_view_tells_what_its_last_heartbeat_told_and_when() -> None:
    table = NodeTable()
    node = registered(table, "a")
    assert table.view(node, held=0, now_s=0.0).heartbeat_at_s is None
    node.note(beat("a", 100).model_copy(update={"is_paused": True}), 1.0)
    node.heard_at_s = 2.5  # it asked for work since
    view = table.view(registered(table, "a", now_s=2.5), held=0, now_s=3.0)
    assert (view.heartbeat_at_s, view.generated_tokens, view.is_paused, view.running) == (1.0, 100, True, 2)
    node.note(beat("a", 150), 4.0)
    view = table.view(node, held=0, now_s=4.0)
    assert (view.heartbeat_at_s, view.generated_tokens, view.is_paused) == (4.0, 150, False)


def test_each_link_is_probed_once_the_trainers_first() -> None:
    table = NodeTable()
    node = registered(table, "a")
    registered(table, "b")
    registered(table, "head", Role.TRAINER)
    assert table.probes(node, 0.0) == ("head:1",)
    assert table.probes(node, 0.1) == ("b:1",)
    assert table.probes(node, 0.2) == ()


def test_a_probe_without_a_report_is_ordered_again_and_one_with_a_report_is_not() -> None:
    table = NodeTable()
    node = registered(table, "a")
    registered(table, "b")
    table.probes(node, 0.0)
    assert table.probes(node, PROBE_AGAIN_S + 1) == ("b:1",)
    report = LinkReport(node_id=node.id, target="b:1", gb_per_s=1.0, latency_ms=1.0)
    table.note_link(report)
    assert table.links == (report,)
    assert table.probes(node, 3 * PROBE_AGAIN_S) == ()


def test_a_link_that_a_node_was_not_told_to_measure_is_none() -> None:
    table = NodeTable()
    node, _ = registered(table, "a"), registered(table, "b")
    report = LinkReport(node_id=node.id, target="b:1", gb_per_s=1.0, latency_ms=1.0)
    table.note_link(report)
    table.note_link(report.model_copy(update={"node_id": NodeId("nobody")}))
    assert table.links == ()


def test_a_node_is_where_it_first_said_that_it_is() -> None:
    table = NodeTable()
    told = Register(node_id=NodeId("a"), role=Role.ROLLOUT, slots=8, address="a:1", region="aws/us-east-1")
    table.register(told, 0.0)
    assert table.register(told.model_copy(update={"region": "gcp/us-east4"}), 1.0).region == "aws/us-east-1"


def test_a_node_of_a_large_fleet_measures_a_few_links_only() -> None:
    table = NodeTable()
    node = registered(table, "a")
    for number in range(3 * MAX_PEERS):
        registered(table, f"n{number}")
    assert sum(len(table.probes(node, 0.0)) for _ in range(100)) == MAX_PEERS


def test_links_of_a_forgotten_node_are_forgotten() -> None:
    table = NodeTable()
    for name in "ab":
        registered(table, name)
    for source, target in (("a", "b:1"), ("b", "a:1")):
        node = table.get(NodeId(source))
        assert node is not None and table.probes(node, 0.0) == (target,)
        table.note_link(LinkReport(node_id=node.id, target=target, gb_per_s=1.0, latency_ms=1.0))
    assert {link.target for link in table.links} == {"a:1", "b:1"}
    table.forget(NodeId("b"))
    assert table.links == ()
    assert [node.id for node in table] == ["a"]


def test_workers_are_weighed_by_what_they_were_seen_to_make() -> None:
    table = NodeTable()
    nodes = [registered(table, name) for name in ("slow", "middle", "fast", "new")]
    for node, rate in zip(nodes, (10, 30, 60, 0), strict=True):
        for second in range(3):
            node.note(beat(node.id, rate * second), float(second))
    table.weigh(lambda node: node.tokens_per_s)
    assert [node.is_fast for node in nodes] == [False, True, True, True]
    assert [node.most(100, least=8) for node in nodes] == [20, 60, 120, 200]
    assert nodes[0].most(1, least=8) == 8, "a whole group at least"


def test_a_worker_counts_as_broken_after_failures_at_different_times_only() -> None:
    node = registered(NodeTable(), "a")
    assert [node.strike("why", now_s, every_s=30.0) for now_s in (0.0, 1.0, 2.0, 3.0)] == [False] * 4
    found = [node.strike("why", 30.0 * turn, every_s=30.0) for turn in range(1, MAX_STRIKES + 1)]
    assert found.index(True) == MAX_STRIKES - 2 and found.count(True) == 1
    assert node.trouble.startswith("why")
