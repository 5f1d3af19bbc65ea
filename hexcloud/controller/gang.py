"""Gangs: machines that are rented in one call and come up together. A rollout node is a gang of one.

A trainer's gang that is at work under the head that the plan wants changes its size as it trains: members join one by
one and leave one by one (docs/adr/0013). Every other change gives it back whole.
"""

from collections.abc import Iterable, Mapping

from hexcloud.controller.observe import Seen
from hexcloud.domain.diff import Diff
from hexcloud.domain.fleet import LIVE, Node, NodeId, NodeStatus
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Placement, Role, Slot, SlotName

BROKEN_GANG = "its gang lacks a member"
"""Cause of the end of machines whose gang is not whole any more."""


def is_at_work(placement: Placement, nodes: Iterable[Node], seen: Seen) -> bool:
    """Has the gang of the wanted head, and of the wanted offer, trained a step? Its world is formed then.

    It follows from what is stored, so a restarted controller says the same.
    """
    wanted = {slot.name: slot for slot in placement.role(Role.TRAINER)}
    gang = [node for node in nodes if node.role is Role.TRAINER and node.slot in wanted and node.status in LIVE]
    head = next((node for node in gang if node.rank == 0 and node.status is NodeStatus.READY), None)
    view = seen.last_view
    if head is None or view is None or view.head != head.id or view.phase is RunPhase.STARTING:
        return False
    return wanted[head.slot].rank == 0 and {slot.offer_id for slot in wanted.values()} == {head.offer_id}


def asked_for(
    nodes: Iterable[Node], slots: Mapping[SlotName, Slot], may_join: bool = False
) -> tuple[tuple[Node, ...], ...]:
    """Return the stored intents that are to be launched, each gang as one, in rank order.

    Of a gang whose intents are not all stored nothing is launched: its controller died between two of them. Who would
    join a gang is launched only while it is at work (`may_join`).
    """
    wanted = [node for node in nodes if node.status is NodeStatus.REQUESTED and node.slot in slots]
    whole = (node for node in wanted if node.role is Role.TRAINER and not node.is_joiner)
    trainers = tuple(sorted(whole, key=lambda node: node.rank))
    singles = tuple((node,) for node in wanted if node.role is Role.ROLLOUT or (may_join and node.is_joiner))
    is_whole = bool(trainers) and all(node.gang == len(trainers) for node in trainers)
    return (*singles, trainers) if is_whole else singles


def remnants(change: Diff, placement: Placement, nodes: Mapping[NodeId, Node]) -> tuple[NodeId, ...]:
    """Return the nodes to keep that are of no use: what is left of a gang that cannot become the one wanted now.

    A gang that is not at work begins with all its ranks or not at all, so it is rented anew as a whole, once its rest
    has ended.
    """
    gang = placement.role(Role.TRAINER)
    kept = [nodes[node_id] for node_id in change.keeps if nodes[node_id].role is Role.TRAINER]
    is_whole = not any(slot.role is Role.TRAINER for slot in change.launches)
    if is_whole and all(node.gang == len(gang) and not node.is_joiner for node in kept):
        return ()
    return tuple(node.id for node in kept)
