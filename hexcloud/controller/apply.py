"""Apply: make the fleet what the placement says. Level-triggered: what is done already is not done again."""

from collections.abc import Mapping
from dataclasses import dataclass

from hexcloud.controller.budget import Purse
from hexcloud.controller.hands import Hands
from hexcloud.controller.life import OVER, is_head
from hexcloud.controller.observe import Seen
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import LIVE, FleetState, Node, NodeId, NodeStatus, node_id
from hexcloud.domain.plan import ExecutionPlan, Placement, Role, Slot, SlotName
from hexcloud.planner.diff import diff

Nodes = dict[NodeId, Node]
_ENDING = frozenset({NodeStatus.LOST, NodeStatus.STOPPING, NodeStatus.DRAINING})
_REVOKED = frozenset({NodeStatus.LOST, NodeStatus.STOPPING, NodeStatus.GONE})


@dataclass(frozen=True)
class Wanted:
    """The plan in force, its slots by name."""

    plan: ExecutionPlan
    slots: Mapping[SlotName, Slot]


def apply(plan: ExecutionPlan, placement: Placement, nodes: Nodes, hands: Hands, purse: Purse) -> Nodes:
    """Return all nodes after one turn of launches, releases and ends. Changes nothing when nothing is left to do."""
    wanted = Wanted(plan, {slot.name: slot for slot in placement.slots})
    fleet = FleetState(nodes=tuple(node for node in nodes.values() if node.status is not NodeStatus.DRAINING))
    change = diff(placement, fleet)
    after = _launch(change.launches, nodes, wanted, hands, purse)
    may_release = _is_filled(placement, after, hands.seen) or _held_long(hands)
    for released in change.releases:
        after[released] = _release(after[released], hands, may_release)
    for node in nodes.values():
        after[node.id] = _end_further(after[node.id], hands) if node.status in _ENDING else after[node.id]
    sweep(nodes, hands)
    return after


def sweep(nodes: Nodes, hands: Hands) -> None:
    """End machines that carry the run's tag and that no record knows."""
    for stray in sorted((hands.seen.listed or frozenset()) - set(nodes)):
        hands.journal.say("machine_swept", f"{stray} carries this run's tag but no record knows it", node=stray)
        hands.terminate(stray)


def admit(nodes: Mapping[NodeId, Node], hands: Hands) -> None:
    """Let every live node register, and no node that is lost or ending; again for each new coordinator."""
    memory, coordinator = hands.memory, hands.seen.coordinator
    if coordinator is None or hands.seen.view is None:
        return
    live = [node for node in nodes.values() if node.status in LIVE]
    revoke = tuple(node.id for node in nodes.values() if node.status in _REVOKED and node.id not in memory.revoked)
    due = [node for node in live if node.id not in memory.admitted]
    if revoke and not due:
        due = live[:1]  # a revocation travels with an admission; this one is already in force
    try:
        for node in due:
            coordinator.admit(node.id, hands.ports.secrets.node_token_sha256(node.id), revoke)
            memory.admitted.add(node.id)
            memory.revoked.update(revoke)
            revoke = ()
    except EngineError:
        return  # the next turn sees what is missing


def _launch(missing: tuple[Slot, ...], nodes: Nodes, wanted: Wanted, hands: Hands, purse: Purse) -> Nodes:
    """Store the intents first, then call the provider for every intent, those of a controller that died included."""
    after = dict(nodes)
    for slot in missing:
        if (intent := _intend(slot, wanted.slots, after, hands, purse)) is not None:
            after[intent.id] = intent
    for node in after.values():
        if node.status is NodeStatus.REQUESTED and node.slot in wanted.slots:
            after[node.id] = hands.launch(node, wanted.slots[node.slot], wanted.plan)
    return after


def _end_further(node: Node, hands: Hands) -> Node:
    return hands.drain(node, "released") if node.status is NodeStatus.DRAINING else hands.end(node, "lost")


def _intend(slot: Slot, slots: Mapping[SlotName, Slot], nodes: Nodes, hands: Hands, purse: Purse) -> Node | None:
    """Store the intent to rent a machine for a slot, unless the pool is blocked, fenced or too dear."""
    if slot.offer_id in hands.memory.blocked or (slot.role is Role.TRAINER and _is_fenced(slots, nodes)):
        return None
    standing = tuple(node for node in nodes.values() if node.status is not NodeStatus.GONE)
    if not purse.can_launch(standing, slot.offer_id):
        if slot.name not in hands.memory.refused_slots:
            hands.memory.refused_slots.add(slot.name)
            hands.journal.say("launch_refused", f"{slot.name} on {slot.offer_id}: the budget does not last for it")
        return None
    run_id = hands.seen.run.id
    attempt = 1 + max((node.attempt for node in nodes.values() if node.slot == slot.name), default=0)
    intent = Node(
        id=node_id(run_id, slot.name, attempt),
        run_id=run_id,
        slot=slot.name,
        attempt=attempt,
        role=slot.role,
        offer_id=slot.offer_id,
        status=NodeStatus.REQUESTED,
        requested_at_s=hands.seen.now_s,
        usd_per_hour=slot.usd_per_hour,
    )
    hands.ports.store.save_node(intent)
    hands.journal.say("node_requested", f"{slot.name} on {slot.offer_id}", node=intent.id, slot=slot.name)
    return intent


def _is_fenced(slots: Mapping[SlotName, Slot], nodes: Nodes) -> bool:
    """Must a trainer wait? Two heads at once would write one run's checkpoints twice, so the old one ends first."""
    return any(
        node.role is Role.TRAINER
        and node.status is not NodeStatus.GONE
        and (node.slot not in slots or node.status not in LIVE or node.status is NodeStatus.DRAINING)
        for node in nodes.values()
    )


def _is_filled(placement: Placement, nodes: Nodes, seen: Seen) -> bool:
    """Does every slot have a machine that works? A registered rollout node still has its engine to start."""
    working = {node.slot for node in nodes.values() if node.status is NodeStatus.READY and _works(node, seen)}
    return all(slot.name in working for slot in placement.slots)


def _works(node: Node, seen: Seen) -> bool:
    view = seen.node_view(node.id)
    return node.role is Role.TRAINER or (view is not None and (view.running > 0 or view.tokens_per_s > 0))


def _held_long(hands: Hands) -> bool:
    return hands.seen.wall_s - hands.memory.placed_at > hands.ports.timing.hold_s


def _release(node: Node, hands: Hands, may_release: bool) -> Node:
    """Make before break: what works is kept until its replacements work. A trainer goes first, or its heir cannot."""
    if hands.seen.is_trained:
        return hands.end(node, OVER)
    if node.status in {NodeStatus.REQUESTED, NodeStatus.STARTING}:
        return hands.end(node, "released before it was ready")
    if may_release or node.role is Role.TRAINER or is_head(node, hands.seen):
        return hands.drain(node, "released")
    return node
