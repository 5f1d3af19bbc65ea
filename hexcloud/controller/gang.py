"""Gangs: machines that are rented in one call, live together and die together. A rollout node is a gang of one."""

from collections.abc import Iterable, Mapping

from hexcloud.domain.diff import Diff
from hexcloud.domain.fleet import Node, NodeId, NodeStatus
from hexcloud.domain.plan import Placement, Role, Slot, SlotName

BROKEN_GANG = "its gang lacks a member"
"""Cause of the end of machines whose gang is not whole any more."""


def asked_for(nodes: Iterable[Node], slots: Mapping[SlotName, Slot]) -> tuple[tuple[Node, ...], ...]:
    """Return the stored intents that are to be launched, each gang as one, in rank order.

    Of a gang whose intents are not all stored nothing is launched: its controller died between two of them.
    """
    wanted = [node for node in nodes if node.status is NodeStatus.REQUESTED and node.slot in slots]
    trainers = tuple(sorted((node for node in wanted if node.role is Role.TRAINER), key=lambda node: node.rank))
    singles = tuple((node,) for node in wanted if node.role is Role.ROLLOUT)
    is_whole = bool(trainers) and all(node.gang == len(trainers) for node in trainers)
    return (*singles, trainers) if is_whole else singles


def remnants(change: Diff, placement: Placement, nodes: Mapping[NodeId, Node]) -> tuple[NodeId, ...]:
    """Return the nodes to keep that are of no use: what is left of a trainer gang that is not the one wanted now.

    A gang trains with all its ranks or not at all, so it is rented anew as a whole, once its rest has ended.
    """
    gang = placement.role(Role.TRAINER)
    kept = [nodes[node_id] for node_id in change.keeps if nodes[node_id].role is Role.TRAINER]
    is_whole = not any(slot.role is Role.TRAINER for slot in change.launches)
    if is_whole and all(node.gang == len(gang) for node in kept):
        return ()
    return tuple(node.id for node in kept)
