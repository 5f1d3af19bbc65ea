from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState, Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Placement, Role, Slot, SlotName
from hexcloud.planner.diff import diff

OFFER = OfferId("acme/us-east-1/a/box/on_demand")
RUN = RunId("main")


def slot(number: int) -> Slot:
    return Slot(name=SlotName(f"rollout-{number}"), role=Role.ROLLOUT, offer_id=OFFER, usd_per_hour=1.0)


def node(number: int, status: NodeStatus = NodeStatus.READY, attempt: int = 0) -> Node:
    name = SlotName(f"rollout-{number}")
    return Node(
        id=node_id(RUN, name, attempt),
        run_id=RUN,
        slot=name,
        attempt=attempt,
        role=Role.ROLLOUT,
        offer_id=OFFER,
        status=status,
        requested_at_s=float(attempt),
        ready_at_s=float(attempt + 10) if status is NodeStatus.READY else None,
    )


def placement(*numbers: int) -> Placement:
    return Placement(slots=tuple(slot(number) for number in numbers))


def test_a_slot_without_a_node_is_launched_and_a_node_without_a_slot_is_released() -> None:
    found = diff(placement(0, 1), FleetState(nodes=(node(1), node(2))))
    assert [one.name for one in found.launches] == ["rollout-0"]
    assert found.releases == (node(2).id,)
    assert found.keeps == (node(1).id,)


def test_a_node_on_its_way_to_its_slot_is_not_launched_again() -> None:
    starting = FleetState(nodes=(node(0, NodeStatus.REQUESTED), node(1, NodeStatus.STARTING)))
    assert diff(placement(0, 1), starting).is_empty


def test_a_lost_node_is_replaced_and_not_released_twice() -> None:
    found = diff(placement(0), FleetState(nodes=(node(0, NodeStatus.LOST), node(5, NodeStatus.STOPPING))))
    assert [one.name for one in found.launches] == ["rollout-0"]
    assert found.releases == ()


def test_of_two_nodes_in_one_slot_the_longer_ready_one_stays() -> None:
    found = diff(placement(0), FleetState(nodes=(node(0, attempt=1), node(0, attempt=0))))
    assert found.keeps == (node(0, attempt=0).id,)
    assert found.releases == (node(0, attempt=1).id,)


def test_of_two_nodes_in_one_slot_the_draining_one_goes() -> None:
    found = diff(placement(0), FleetState(nodes=(node(0, NodeStatus.DRAINING), node(0, attempt=1))))
    assert found.keeps == (node(0, attempt=1).id,)


@given(
    wanted=st.sets(st.integers(0, 9), max_size=8),
    nodes=st.lists(
        st.builds(node, st.integers(0, 9), st.sampled_from(NodeStatus), st.integers(0, 3)),
        max_size=12,
        unique_by=lambda one: one.id,
    ),
)
def test_doing_a_diff_leaves_nothing_to_do(wanted: set[int], nodes: list[Node]) -> None:
    target = placement(*sorted(wanted))
    found = diff(target, FleetState(nodes=tuple(nodes)))
    launched = tuple(node(int(one.name.split("-")[1]), NodeStatus.REQUESTED, attempt=9) for one in found.launches)
    left = tuple(one for one in nodes if one.id not in found.releases)
    after = diff(target, FleetState(nodes=(*left, *launched)))
    assert after.is_empty
    assert len(after.keeps) == len(wanted)
