"""Gangs: machines that are rented in one call and come up together. A rollout node is a gang of one, or of its replica.

A trainer's gang that is at work under the head that the plan wants changes its size as it trains: members join one by
one and leave one by one (docs/adr/0013). Every other change gives it back whole. A replica knows no other change:
without one of its machines its engine is gone, so the others end too, and another is planned (docs/adr/0014).
"""

from collections.abc import Iterable, Mapping

from hexcloud.controller.memory import Ask
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
    """Return the stored intents that are to be launched, each gang as one, in rank order; rollout before trainers.

    Of a gang whose intents are not all stored nothing is launched: its controller died between two of them. Who would
    join a gang is launched only while it is at work (`may_join`).
    """
    wanted = [node for node in nodes if node.status is NodeStatus.REQUESTED and node.slot in slots]
    whole = (node for node in wanted if node.role is Role.TRAINER and not node.is_joiner)
    trainers = tuple(sorted(whole, key=lambda node: node.rank))
    rollout = replicas(node for node in wanted if node.role is Role.ROLLOUT)
    joiners = ((node,) for node in wanted if may_join and node.is_joiner)
    gangs = (*rollout, *joiners, *([trainers] if trainers else []))
    return tuple(gang for gang in gangs if all(node.gang == len(gang) for node in gang))


def replicas(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], ...]:
    """Return rollout nodes by replica, those that were asked for together, in rank order."""
    found: dict[tuple[SlotName, float], list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.rank):
        found.setdefault((node.unit, node.requested_at_s), []).append(node)
    return tuple(tuple(members) for members in found.values())


def ask_of(node: Node) -> Ask:
    """Return what the machines of one call to the provider have in common, and no others."""
    is_gang = node.role is Role.TRAINER and node.gang > 1
    return node.role.value if is_gang else node.unit, node.requested_at_s


def mates(node: Node, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the other machines of the call in which a machine was asked for."""
    if node.gang == 1:
        return ()
    return tuple(one for one in nodes if one.id != node.id and ask_of(one) == ask_of(node))


def is_up(node: Node, nodes: Iterable[Node]) -> bool:
    """Is everything ready that was asked for together with a machine?"""
    return all(one.status is NodeStatus.READY for one in nodes if ask_of(one) == ask_of(node))


def broken(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], ...]:
    """Return what is left of each replica that is not whole; machines that drain are as good as gone."""
    live = [node for node in nodes if node.role is Role.ROLLOUT and node.head and node.status in LIVE]
    staying = (tuple(node for node in one if node.status is not NodeStatus.DRAINING) for one in replicas(live))
    return tuple(one for one in staying if one and len(one) < one[0].gang)


def is_waiting(node: Node, nodes: Iterable[Node]) -> bool:
    """Does a machine wait for its replica's head, which may finish what it holds on it? Then it leaves after it."""
    if node.role is not Role.ROLLOUT or node.rank == 0:
        return False
    together = (node.head, node.requested_at_s)
    return any((one.slot, one.requested_at_s) == together and one.status in LIVE for one in nodes)


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
