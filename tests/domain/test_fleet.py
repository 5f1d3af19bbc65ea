"""Nodes and their names."""

from hexcloud.domain.fleet import FleetState, Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName


def node(status: NodeStatus) -> Node:
    run, slot = RunId("main-1"), SlotName("rollout-0")
    return Node(
        id=node_id(run, slot, 2),
        run_id=run,
        slot=slot,
        attempt=2,
        role=Role.ROLLOUT,
        offer_id=OfferId("a/b/c/d/spot"),
        status=status,
        requested_at_s=0.0,
    )


def test_id_names_run_slot_and_attempt() -> None:
    assert node(NodeStatus.READY).id == "main-1.rollout-0.2"


def test_nodes_that_are_lost_or_stopping_fill_no_slot() -> None:
    fleet = FleetState(nodes=tuple(node(status) for status in NodeStatus))
    assert {entry.status for entry in fleet.live()} == {
        NodeStatus.REQUESTED,
        NodeStatus.STARTING,
        NodeStatus.READY,
        NodeStatus.DRAINING,
    }
