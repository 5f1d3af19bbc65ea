"""Wind down: checkpoint, end every machine, have each end confirmed, close the books."""

from hexcloud.controller.apply import Nodes, sweep
from hexcloud.controller.budget import Purse
from hexcloud.controller.hands import Hands
from hexcloud.controller.life import Patience
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Role
from hexcloud.domain.run import RunState


def begin_stop(hands: Hands, reason: str, failed: bool = False) -> None:
    """Remember that the run ends, and why, so that a restarted controller goes on ending it."""
    run_id = hands.seen.run.id
    hands.journal.say("run_stopping", reason, failed=failed)
    hands.ports.store.set_run_state(run_id, RunState.STOPPING, reason)


def wind_down(nodes: Nodes, hands: Hands, purse: Purse) -> Nodes:
    """Return all nodes after one turn of ending. The last turn changes the run's state."""
    memory, seen = hands.memory, hands.seen
    memory.stopping_at = memory.stopping_at if memory.stopping_at is not None else seen.wall_s
    standing = [node for node in nodes.values() if node.status is not NodeStatus.GONE]
    if _can_checkpoint(nodes, hands) and not purse.must_end(standing):
        _renew_and_stop(hands, purse.lease_end_wall_s(standing))
        return nodes
    after = nodes | {node.id: hands.end(node, seen.run.reason or "the run ends") for node in standing}
    sweep(nodes, hands)
    if _is_confirmed(nodes, hands) or _is_beyond_help(hands):
        _finish(hands)
    return after


def _can_checkpoint(nodes: Nodes, hands: Hands) -> bool:
    """Is there a coordinator that is not done yet, and time left for it?"""
    seen, memory = hands.seen, hands.memory
    waited_s = seen.wall_s - (memory.stopping_at or seen.wall_s)
    has_head = any(node.role is Role.TRAINER and node.status is NodeStatus.READY for node in nodes.values())
    is_done = seen.view is not None and seen.view.phase is RunPhase.DONE
    return has_head and not is_done and waited_s < hands.ports.timing.checkpoint_s


def _renew_and_stop(hands: Hands, run_until_s: float) -> None:
    coordinator = hands.seen.coordinator
    if coordinator is None:
        return
    try:
        coordinator.renew(run_until_s)
        coordinator.stop(hands.seen.run.reason)
    except EngineError:
        return  # asked again next turn, until the time for it is over


def _is_confirmed(nodes: Nodes, hands: Hands) -> bool:
    seen = hands.seen
    is_empty = seen.is_whole and not seen.listed
    return is_empty and all(node.status is NodeStatus.GONE and not _may_show(node, hands) for node in nodes.values())


def _may_show(node: Node, hands: Hands) -> bool:
    """May a machine that never came up still be missing from the list? Perhaps its launch was broken off just now."""
    timing, memory = hands.ports.timing, hands.memory
    return node.ready_at_s is None and Patience(timing, memory).waited_s(node, hands.seen) <= timing.visible_s


def _is_beyond_help(hands: Hands) -> bool:
    """Did the provider stay silent until every spend lease must have lapsed?"""
    seen, timing = hands.seen, hands.ports.timing
    start_s = max(
        (seen.startup_s(node.offer_id) for node in seen.standing()), default=seen.market.calibration.startup_s
    )
    ends_s = timing.spend_lease_s + timing.self_end_s + 2 * timing.teardown_s
    lapsed_s = timing.checkpoint_s + start_s / seen.run.clock_scale + ends_s
    waited_s = seen.wall_s - (hands.memory.stopping_at or seen.wall_s)
    return not seen.is_whole and waited_s > lapsed_s


def _finish(hands: Hands) -> None:
    """Set the last state. A run whose coordinator never said `done` may have lost its last steps: it failed."""
    store, run = hands.ports.store, hands.seen.run
    has_failed = any(event.fields.get("failed") for _, event in store.events(run.id) if event.kind == "run_stopping")
    view, reason = store.view(run.id), run.reason
    if view is not None and view.phase is not RunPhase.DONE:
        has_failed, reason = True, f"{reason}; the coordinator did not confirm a last checkpoint"
    if not hands.seen.is_whole:
        has_failed, reason = True, f"{reason}; the provider did not confirm that its machines ended"
    state = RunState.FAILED if has_failed else RunState.DONE
    hands.journal.say("run_ended", reason, state=state.value, spent_usd=store.spent_usd(run.id))
    store.set_run_state(run.id, state, reason)
