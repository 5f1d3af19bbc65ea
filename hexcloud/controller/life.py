"""A node's life: what one observation makes of its status. Pure; every rule of ending and loss is here."""

from dataclasses import dataclass

from hexcloud.controller.gang import mates
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import Timing
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.messages import INTERRUPTION
from hexcloud.domain.plan import Role
from hexcloud.domain.run import RunState

_RUNNING = frozenset({NodeStatus.STARTING, NodeStatus.READY})
VANISHED = "vanished from the provider"
LATE = "late in"
UNREGISTERED = f"{LATE} register"
SILENT = "silent"
BROKEN = "broken"
"""It speaks, and nothing comes of what it is given."""
"""How the causes of the kinds of loss begin, beside INTERRUPTION."""
OVER = "the run is over"
"""Cause of an end that is no loss: a node whose work is done exits by itself."""


@dataclass(frozen=True)
class Patience:
    """What the rules of one turn need besides the observation."""

    timing: Timing
    memory: Memory

    def waited_s(self, node: Node, seen: Seen) -> float:
        """Return wall seconds since the machine's launch was last called; since its intent after a restart."""
        at = self.memory.launched_at.get(node.id)
        return self.asked_s(node, seen) if at is None else seen.wall_s - at

    def asked_s(self, node: Node, seen: Seen) -> float:
        """Return wall seconds since the intent was stored."""
        return (seen.now_s - node.requested_at_s) / seen.run.clock_scale

    def register_s(self, node: Node) -> float:
        """Return how long it may take to register, counted as `waited_s` counts."""
        return self.timing.register_s if node.id in self.memory.launched_at else self.timing.start_s

    def is_heard(self, node: Node) -> bool:
        """Did the provider say yes when this controller last asked for the node's end?"""
        ending = self.memory.endings.get(node.id)
        return ending is not None and ending.is_heard


def follow(node: Node, seen: Seen, patience: Patience) -> Node:
    """Return the node as it is after this observation."""
    new = _follow(node, seen, patience)
    is_over = seen.run.state is RunState.STOPPING or (seen.is_trained and node.role is Role.ROLLOUT)
    return new.model_copy(update={"cause": OVER}) if is_over and was_lost(node, new) else new


def was_noticed(old: Node, new: Node) -> bool:
    """Did the cloud just say that it takes the machine back?"""
    return old.status is NodeStatus.READY and new.status is NodeStatus.DRAINING and new.cause.startswith(INTERRUPTION)


def was_lost(old: Node, new: Node) -> bool:
    """Did a machine that we wanted end without our asking?"""
    is_end = old.status in _RUNNING and new.status in {NodeStatus.LOST, NodeStatus.GONE}
    return is_end and new.cause != OVER


def _follow(node: Node, seen: Seen, patience: Patience) -> Node:
    is_listed = seen.is_listed(node)
    match node.status:
        case NodeStatus.GONE:
            return _moved(node, NodeStatus.STOPPING, "found again after its end") if is_listed else node
        case NodeStatus.STOPPING:
            # What was asked for just now may be on its way without being listed: only a yes to its end settles that.
            return _gone(node, seen, node.cause) if is_listed is False and patience.is_heard(node) else node
        case NodeStatus.LOST | NodeStatus.DRAINING:
            return _gone(node, seen, node.cause) if is_listed is False else node
        case NodeStatus.REQUESTED:
            # Its launch is called until it returns, whatever the list says; who was rented with it may have been told.
            is_rented = any(one.status in _RUNNING for one in mates(node, seen.nodes))
            return node.model_copy(update={"status": NodeStatus.STARTING}) if is_rented else node
        case _:
            return _follow_running(node, seen, patience, is_listed)


def is_head(node: Node) -> bool:
    """Is this a node whose machine runs the coordinator?"""
    return node.role is Role.TRAINER and node.rank == 0


def _follow_running(node: Node, seen: Seen, patience: Patience, is_listed: bool | None) -> Node:
    waited_s, timing = patience.waited_s(node, seen), patience.timing
    is_young = node.status is NodeStatus.STARTING and waited_s < timing.visible_s
    if is_listed is False and not is_young:
        return _gone(node, seen, VANISHED)
    if node.status is NodeStatus.STARTING:
        if seen.node_view(node.id):
            return node.model_copy(update={"status": NodeStatus.READY, "ready_at_s": seen.now_s})
        if waited_s > patience.register_s(node) and not seen.unreadable:
            cause = f"{UNREGISTERED}: no heartbeat after {patience.register_s(node):.0f} s"
            return _moved(node, NodeStatus.LOST, cause)
        return node
    if (view := seen.node_view(node.id)) and view.notice and view.notice.cause == INTERRUPTION:
        return _moved(node, NodeStatus.DRAINING, f"{INTERRUPTION}: {view.notice.detail}")
    if view and view.trouble:
        return _moved(node, NodeStatus.LOST, f"{BROKEN}: {view.trouble}")
    silent_s = _silent_s(node, seen, patience)
    bound_s = timing.silent_trainer_s if node.role is Role.TRAINER else timing.silent_rollout_s
    return _moved(node, NodeStatus.LOST, f"{SILENT} for {silent_s:.0f} s") if silent_s > bound_s else node


def _silent_s(node: Node, seen: Seen, patience: Patience) -> float:
    """Return how long a ready node said nothing. While the coordinator is away only its own machine is to blame."""
    memory = patience.memory
    if seen.view is None:
        away_s = seen.wall_s - memory.answered_at if memory.answered_at is not None else 0.0
        return away_s if is_head(node) else 0.0
    heard_at = max(memory.last_word.get(node.id, 0.0), memory.epoch_since)
    return seen.wall_s - heard_at


def _moved(node: Node, status: NodeStatus, cause: str) -> Node:
    return node.model_copy(update={"status": status, "cause": cause, "gone_at_s": None})


def _gone(node: Node, seen: Seen, cause: str) -> Node:
    return node.model_copy(update={"status": NodeStatus.GONE, "cause": cause, "gone_at_s": seen.now_s})
