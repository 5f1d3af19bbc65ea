"""Progress: does the run get anywhere? A trainer lost again and again, or a fleet that trains no step, is ended."""

from collections.abc import Iterable

from hexcloud.controller.apply import Nodes
from hexcloud.controller.hands import Hands
from hexcloud.controller.launching import UNKNOWN
from hexcloud.controller.life import BROKEN, LATE, SILENT, VANISHED, is_head
from hexcloud.controller.memory import Progress
from hexcloud.controller.observe import Seen
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.messages import INTERRUPTION, RunPhase
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role

MAX_TRAINER_STARTS = 5
"""Gangs in a row that were paid for and never came up: whatever it is, renting a sixth will not mend it."""
NEVER_CAME = (LATE, VANISHED, UNKNOWN)
MAX_DROPOUTS = 3
"""Machines in a row that join a gang and are lost before a stall would be told of: then their pool is blocked."""
LOSSES = (VANISHED, SILENT, BROKEN, INTERRUPTION)
MAX_TRAINER_LOSSES = 3
"""Losses of the trainer's head in a row with nothing new trained in between: the reason is not the market."""


def note(hands: Hands) -> None:
    """Remember the best versions that the coordinator told of; say when training goes on after a loss."""
    seen, progress = hands.seen, hands.memory.progress
    if view := seen.last_view:
        checkpoint, version = progress.best
        progress.best = max(checkpoint, view.checkpoint_version), max(version, view.version)
    lost, lost_at = progress.last_lost, progress.lost_at
    if lost is None or lost_at is None or seen.view is None or seen.view.head == lost.id:
        return
    if (seen.view.last_step_at_s or 0.0) > lost_at:
        took_s, progress.lost_at = seen.wall_s - lost_at, None
        text = f"training goes on at step {seen.view.version}, {took_s:.0f} s after the loss of {lost.slot}"
        hands.journal.say("trainer_recovered", text, node=seen.view.head, took_s=took_s, version=seen.view.version)


def count_loss(node: Node, progress: Progress, wall_s: float) -> None:
    """Count the loss of a trainer's head that had been at work."""
    is_new = progress.best_at_loss is None or any(
        now > then for now, then in zip(progress.best, progress.best_at_loss, strict=True)
    )
    progress.losses = 1 if is_new else progress.losses + 1
    progress.best_at_loss, progress.last_lost = progress.best, node
    progress.lost_at = wall_s if progress.lost_at is None else progress.lost_at


def never_up(nodes: Iterable[Node]) -> str | None:
    """Return what became of the last trainer gangs when too many in a row never came up, or None. Pure.

    Refusals cost nothing and count for nothing; neither does a gang that we gave up for a better one, nor a machine
    that should have joined one at work.
    """
    gangs: dict[tuple[float, OfferId], list[Node]] = {}
    for node in nodes:
        if node.role is Role.TRAINER and not node.is_joiner:
            gangs.setdefault((node.requested_at_s, node.offer_id), []).append(node)
    failed: list[Node] = []
    for gang in gangs.values():
        culprits = [node for node in gang if node.ready_at_s is None and node.cause.startswith(NEVER_CAME)]
        failed += culprits[:1]
        if all(node.ready_at_s is not None for node in gang):
            failed.clear()
    if len(failed) < MAX_TRAINER_STARTS:
        return None
    last = failed[-1]
    return f"the trainer was rented {len(failed)} times and never came up, last on {last.offer_id}: {last.cause}"


def note_dropout(node: Node, hands: Hands) -> None:
    """Keep away from a pool whose machines are lost again and again as they join the gang: each takes steps with it."""
    bound_s, seen = _bound_s(hands), hands.seen
    if bound_s is None:
        return
    joiners = [
        one for one in (*(one for one in seen.nodes if one.id != node.id), node) if one.offer_id == node.offer_id
    ]
    lost = dropouts(joiners, seen.now_s, bound_s * seen.run.clock_scale)
    if len(lost) >= MAX_DROPOUTS:
        hands.block(
            node.offer_id, f"{len(lost)} machines in a row were lost within {bound_s:.0f} s as they joined a gang"
        )
        text = (
            f"{len(lost)} machines in a row joined the trainer and were lost within {bound_s:.0f} s, last {node.slot}: "
            f"{node.cause}; the gang goes on without, see nodes/{node.id}/node.log"
        )
        hands.journal.say("gang_cannot_grow", text, node=node.id, lost=len(lost))


def dropouts(nodes: Iterable[Node], now_s: float, lasts_s: float) -> tuple[Node, ...]:
    """Return the machines, the last in a row, that joined a gang and were lost within `lasts_s` (run clock). Pure."""
    lost: list[Node] = []
    for node in sorted(nodes, key=lambda node: node.requested_at_s):
        if not node.is_joiner or node.ready_at_s is None:
            continue
        stayed_s = (now_s if node.gone_at_s is None else node.gone_at_s) - node.ready_at_s
        if stayed_s >= lasts_s:
            lost.clear()
        elif node.cause.startswith(LOSSES):
            lost.append(node)
    return tuple(lost)


def hopeless(nodes: Nodes, hands: Hands) -> str | None:
    """Return why going on is of no use, or None; a stall is told in the run's history before it ends the run."""
    progress = hands.memory.progress
    if progress.losses >= MAX_TRAINER_LOSSES and progress.last_lost:
        lost = progress.last_lost
        return (
            f"the trainer was lost {progress.losses} times without a new checkpoint, last: {lost.cause}; "
            f"see nodes/{lost.id}/node.log"
        )
    return never_up(nodes.values()) or _stalled(nodes, hands) or _never_begun(nodes, hands)


def _never_begun(nodes: Nodes, hands: Hands) -> str | None:
    """Return why a trainer had nothing to do for longer than a whole fleet takes to start, or None."""
    seen, progress, bound_s = hands.seen, hands.memory.progress, _bound_s(hands)
    has_trainer = any(is_head(node) and node.status is NodeStatus.READY for node in nodes.values())
    is_over = seen.is_trained or (seen.view is not None and seen.view.phase is RunPhase.DONE)
    if not has_trainer or is_over or bound_s is None or progress.head_since is None:
        progress.head_since = seen.wall_s
        return None
    still_s = seen.wall_s - progress.head_since
    if still_s <= hands.ports.timing.start_s + 2 * bound_s:
        return None
    what = "the first step was not trained within" if progress.best[1] <= 0 else "no step for"
    return f"{what} {still_s:.0f} s although the trainer is ready; `hexcloud events` tells what rollout lacks"


def _stalled(nodes: Nodes, hands: Hands) -> str | None:
    seen, progress = hands.seen, hands.memory.progress
    view, bound_s = seen.view, _bound_s(hands)
    stand = (view.epoch, view.checkpoint_version, view.version) if view else None
    if stand != progress.stand or not _should_train(nodes, seen) or bound_s is None or progress.since is None:
        progress.head_since = progress.head_since if stand == progress.stand else seen.wall_s
        progress.stand, progress.since, progress.is_told = stand, seen.wall_s, False
        return None
    still_s = seen.wall_s - progress.since
    if still_s > 2 * bound_s:
        return f"no step for {still_s:.0f} s although trainer and rollout nodes are ready"
    if still_s > bound_s and not progress.is_told:
        progress.is_told = True
        text = (
            f"no step for {still_s:.0f} s although trainer and rollout nodes are ready; at {2 * bound_s:.0f} s it ends"
        )
        hands.journal.say("stalled", text, version=seen.view.version if seen.view else -1)
    return None


def _should_train(nodes: Nodes, seen: Seen) -> bool:
    """Is there everything that a step needs? A run that starts or writes its output trains nothing, rightly."""
    if seen.view is None or seen.view.phase is not RunPhase.TRAINING or seen.is_trained:
        return False
    return {node.role for node in nodes.values() if node.status is NodeStatus.READY} >= {Role.TRAINER, Role.ROLLOUT}


def _bound_s(hands: Hands) -> float | None:
    """Return after how many wall seconds without a step a run stalls."""
    accepted, timing = hands.seen.accepted, hands.ports.timing
    if accepted is None:
        return None
    step_s = accepted[0].forecast.step_s / hands.seen.run.clock_scale
    return max(timing.stall_s, timing.stall_steps * step_s)
