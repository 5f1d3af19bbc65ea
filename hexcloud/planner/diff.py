"""diff: what must be rented and returned so that the fleet fills a placement; after doing it, the diff is empty."""

from hexcloud.domain.diff import Diff
from hexcloud.domain.fleet import FleetState, Node, NodeStatus
from hexcloud.domain.plan import Placement, SlotName


def diff(placement: Placement, fleet: FleetState) -> Diff:
    """Compare wanted with real, in the order of the placement and of the fleet.

    A slot without a live node is launched; a live node whose slot is not wanted, or that doubles another node of its
    slot, is released. Nodes already on their way out (stopping, lost) are neither.
    """
    wanted = {slot.name for slot in placement.slots}
    fillers: dict[SlotName, Node] = {}
    for node in sorted(fleet.live(), key=seniority):
        if node.slot in wanted:
            fillers.setdefault(node.slot, node)
    keeps = {node.id for node in fillers.values()}
    return Diff(
        launches=tuple(slot for slot in placement.slots if slot.name not in fillers),
        releases=tuple(node.id for node in fleet.live() if node.id not in keeps),
        keeps=tuple(node.id for node in fleet.live() if node.id in keeps),
    )


def seniority(node: Node) -> tuple[bool, bool, bool, float, str]:
    """Return a sort key that puts the node most worth keeping first: staying, ready, a gang's head, ready for longest.

    A gang that shrinks or grows does so under the head that it has.
    """
    since_s = node.requested_at_s if node.ready_at_s is None else node.ready_at_s
    return (node.status is NodeStatus.DRAINING, node.ready_at_s is None, node.rank > 0, since_s, node.id)
