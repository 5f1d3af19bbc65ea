"""Apply: make the fleet what the placement says. Level-triggered: what is done already is not done again."""

from collections.abc import Mapping
from itertools import chain

from hexcloud.controller.budget import Purse
from hexcloud.controller.gang import BROKEN_GANG, asked_for, broken, is_at_work, is_waiting, remnants
from hexcloud.controller.hands import Hands
from hexcloud.controller.launching import Launching
from hexcloud.controller.life import OVER, Patience
from hexcloud.controller.observe import Seen
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import LIVE, FleetState, Node, NodeId, NodeStatus, node_id
from hexcloud.domain.plan import ExecutionPlan, Placement, Role, Slot
from hexcloud.estimate.disk import disk_gib
from hexcloud.planner.diff import diff
from hexcloud.planner.moves import units

Nodes = dict[NodeId, Node]
_ENDING = frozenset({NodeStatus.LOST, NodeStatus.STOPPING, NodeStatus.DRAINING})
_REVOKED = frozenset({NodeStatus.LOST, NodeStatus.STOPPING, NodeStatus.GONE})


def apply(plan: ExecutionPlan, placement: Placement, nodes: Nodes, hands: Hands, purse: Purse) -> Nodes:
    """Return all nodes after one turn of launches, releases and ends. Changes nothing when nothing is left to do."""
    slots, may_join = {slot.name: slot for slot in placement.slots}, can_resize(placement, nodes, hands)
    launching = Launching(hands, plan, slots, may_join and not hands.seen.is_trained)
    fleet = FleetState(nodes=tuple(node for node in nodes.values() if node.status is not NodeStatus.DRAINING))
    change = diff(placement, fleet)
    after = _launch(change.launches, nodes, launching, purse)
    part = hands.drain if _drains_trainer(nodes) else hands.end  # a last checkpoint takes all ranks
    for remnant in () if may_join else remnants(change, placement, after):
        after[remnant] = part(after[remnant], BROKEN_GANG)
    may_release = _is_filled(placement, after, hands.seen) or _held_long(hands)
    for released in change.releases:
        after[released] = _release(after[released], after, hands, may_release)
    _end_broken(after, hands)
    for node in nodes.values():
        after[node.id] = _end_further(after[node.id], after, hands) if node.status in _ENDING else after[node.id]
    sweep(nodes, hands)
    return after


def can_resize(placement: Placement, nodes: Nodes, hands: Hands) -> bool:
    """Can the gang that runs become that of the placement as it trains, its members rented and ended one by one?"""
    return hands.ports.provisioner.is_elastic and is_at_work(placement, nodes.values(), hands.seen)


def sweep(nodes: Nodes, hands: Hands) -> None:
    """End machines that carry the run's tag and that no record knows."""
    for stray in sorted((hands.seen.listed or frozenset()) - set(nodes)):
        hands.journal.say("machine_swept", f"{stray} carries this run's tag but no record knows it", node=stray)
        hands.terminate(stray)
    _tell_ended_strays(nodes, hands)


def _tell_ended_strays(nodes: Nodes, hands: Hands) -> None:
    """Say that a machine which no record knows, and which the user was alarmed of, has gone."""
    listed = hands.seen.listed if hands.seen.is_whole else None
    for stray, ending in hands.memory.endings.items():
        if listed is not None and ending.told_at is not None and stray not in listed | set(nodes):
            ending.told_at = None
            hands.journal.say("node_gone", f"{stray} has ended at last", node=stray)


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
            coordinator.admit(node.id, hands.ports.secrets.node_token_sha256(node.id), node.role, revoke)
            memory.admitted.add(node.id)
            memory.revoked.update(revoke)
            revoke = ()
    except EngineError:
        return  # the next turn sees what is missing


def _launch(missing: tuple[Slot, ...], nodes: Nodes, launching: Launching, purse: Purse) -> Nodes:
    """Store the intents first, then call the provider for every intent, those of a controller that died included."""
    after, hands = dict(nodes), launching.hands
    gang = tuple(sorted((slot for slot in missing if slot.role is Role.TRAINER), key=lambda slot: slot.rank))
    joiners = gang if launching.may_join else ()
    rollout = units(slot for slot in missing if slot.role is Role.ROLLOUT)
    whole = (unit for unit in rollout if unit[0].rollout is None or len(unit) == unit[0].rollout.nodes)
    for unit in (*whole, *((slot,) for slot in joiners)):
        after |= _intend(unit, after, hands, purse)
    if gang and not launching.may_join and not any(_is_fenced(node, hands) for node in nodes.values()):
        after |= _intend(gang, after, hands, purse)
    for asked in asked_for(after.values(), launching.slots, launching.may_join):
        after |= {node.id: node for node in launching.launch(asked)}
    return after


def _end_broken(nodes: Nodes, hands: Hands) -> None:
    """End what is left of replicas; while a machine that leaves is still there, their heads may finish their work."""
    for node in chain(*broken(nodes.values())):
        if not is_waiting(node, nodes.values()):
            may_finish = any(one.status is NodeStatus.DRAINING and is_waiting(one, (node,)) for one in nodes.values())
            nodes[node.id] = (hands.drain if may_finish else hands.end)(node, BROKEN_GANG)


def _end_further(node: Node, nodes: Nodes, hands: Hands) -> Node:
    if node.status is NodeStatus.DRAINING and is_waiting(node, nodes.values()):
        return node
    return hands.drain(node, "released") if node.status is NodeStatus.DRAINING else hands.end(node, "lost")


def _intend(gang: tuple[Slot, ...], nodes: Nodes, hands: Hands, purse: Purse) -> Nodes:
    """Store the intents to rent the machines of a gang, unless their pool is blocked or they are too dear together."""
    offer_id = gang[0].offer_id
    if offer_id in hands.memory.blocked:
        return {}
    if hands.seen.is_silent(offer_id):  # what is asked for there may begin, and nobody would know
        hands.block(offer_id, "its region gives no answer")
        return {}
    standing = tuple(node for node in nodes.values() if node.status is not NodeStatus.GONE)
    if not purse.can_launch(standing, offer_id, gang[0].role, len(gang)):
        for slot in gang:
            if slot.name not in hands.memory.refused_slots:
                hands.memory.refused_slots.add(slot.name)
                hands.journal.say("launch_refused", f"{slot.name} on {slot.offer_id}: the budget does not last for it")
        return {}
    intents = [_intent(slot, len(gang), nodes, hands) for slot in gang]
    for intent in intents:
        hands.ports.store.save_node(intent)
        hands.journal.say("node_requested", f"{intent.slot} on {offer_id}", node=intent.id, slot=intent.slot)
    return {intent.id: intent for intent in intents}


def _intent(slot: Slot, gang: int, nodes: Nodes, hands: Hands) -> Node:
    run_id = hands.seen.run.id
    attempt = 1 + max((node.attempt for node in nodes.values() if node.slot == slot.name), default=0)
    return Node(
        id=node_id(run_id, slot.name, attempt),
        run_id=run_id,
        slot=slot.name,
        attempt=attempt,
        role=slot.role,
        offer_id=slot.offer_id,
        status=NodeStatus.REQUESTED,
        requested_at_s=hands.seen.now_s,
        usd_per_hour=slot.usd_per_hour,
        rank=slot.rank,
        gang=gang,
        head=slot.head,
        disk_gib=disk_gib(slot.role, hands.seen.run.workload),
    )


def _drains_trainer(nodes: Nodes) -> bool:
    return any(node.role is Role.TRAINER and node.status is NodeStatus.DRAINING for node in nodes.values())


def _is_fenced(node: Node, hands: Hands) -> bool:
    """Must a gang wait for this node? Two heads would write one run's checkpoints twice, so the old one ends first.

    Where nobody can say whether it has, its spend lease must have ended it.
    """
    if node.role is not Role.TRAINER or node.status is NodeStatus.GONE:
        return False
    is_unknown = hands.seen.is_listed(node) is None and node.status in _REVOKED
    return not (is_unknown and _is_lapsed(node, hands))


def _is_lapsed(node: Node, hands: Hands) -> bool:
    """Is the last lease that a node can have been given over? None was renewed after the coordinator's last answer."""
    seen, timing, memory = hands.seen, hands.ports.timing, hands.memory
    silent_s = seen.wall_s - (memory.answered_at if memory.answered_at is not None else seen.wall_s)
    lease_s = timing.spend_lease_s + 2 * timing.teardown_s
    if node.ready_at_s is None:  # its first lease began with its program, at the latest when it had to be there
        silent_s = min(silent_s, Patience(timing, memory).asked_s(node, seen) - timing.start_s)
    return silent_s > lease_s


def _is_filled(placement: Placement, nodes: Nodes, seen: Seen) -> bool:
    """Does every slot have a machine that works? A registered rollout node still has its engine to start."""
    working = {node.slot for node in nodes.values() if node.status is NodeStatus.READY and _works(node, seen)}
    return all(slot.name in working for slot in placement.slots)


def _works(node: Node, seen: Seen) -> bool:
    view = seen.node_view(node.id)
    return (
        node.role is Role.TRAINER or node.rank > 0 or (view is not None and (view.running > 0 or view.tokens_per_s > 0))
    )


def _held_long(hands: Hands) -> bool:
    return hands.seen.wall_s - hands.memory.placed_at > hands.ports.timing.hold_s


def _release(node: Node, nodes: Nodes, hands: Hands, may_release: bool) -> Node:
    """Make before break: what works is kept until its replacements work. A trainer goes first, or its heir cannot."""
    if hands.seen.is_trained:
        return hands.end(node, OVER)
    if node.status in {NodeStatus.REQUESTED, NodeStatus.STARTING}:
        return hands.end(node, "released before it was ready")
    if is_waiting(node, nodes.values()):
        return node
    if may_release or node.role is Role.TRAINER:
        return hands.drain(node, "released")
    return node
