"""Calibrate: what the run's own engines say of their GPUs corrects the market's calibration, from turn to turn.

Only saturated time on real machines teaches: emulated ones are as fast as the plan says, or as this computer lets them.
The history is the memory: a speed is told when it moved, and a restarted controller goes on from what was told last.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hexcloud.controller.journal import Journal
from hexcloud.controller.memory import Learning, Lesson
from hexcloud.controller.observe import Seen
from hexcloud.domain.calibration import Factor, Phase, class_of
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import NodeView
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import RolloutColumn
from hexcloud.estimate.correction import Beat, corrected_speed, stretches
from hexcloud.planner.anew import column_anew
from hexcloud.ports import Store

CALIBRATED = "calibrated"
"""Kind of the event that tells a GPU's new speed."""
TOLD_SHARE = 0.05
"""A speed that moved by more than this since it was last told is told again; less is lost by a restart."""
GENERATIONS = 4.0
"""A node is learned from after this many p95 generations of saturated time: its tokens are counted sample by sample."""
SOURCE = "this run's own engines in saturated time"


def calibrate(seen: Seen, store: Store, learning: Learning) -> Seen:
    """Return what was seen, with the market's calibration as this run's engines correct it. Raises StoreError.

    Speeds are factors over the estimate without any; the bounds of a correction are around the market's own factor,
    which a profile of this GPU may have set far from 1.
    """
    if not seen.run.spec.is_real:
        return seen
    if learning.speeds is None:
        learning.told = told_speeds(event for _, event in store.events(seen.run.id))
        learning.speeds = dict(learning.told)
    for gpu, lesson in _lessons(seen, learning):
        known = _market_speed(gpu, seen)
        correction = learning.speeds.get(gpu, known) / known
        learning.speeds[gpu] = known * corrected_speed(correction, (lesson.stretch,), lesson.expected_tokens_per_s)
    _tell(seen, store, learning)
    calibration = seen.market.calibration.with_factors(_factors(learning.speeds, seen))
    return replace(seen, market=seen.market.model_copy(update={"calibration": calibration}))


def told_speeds(events: Iterable[Event]) -> dict[str, float]:
    """Return the last speed of each GPU that a run's history, oldest first, tells."""
    return {
        str(event.fields["gpu"]): float(speed)
        for event in events
        if event.kind == CALIBRATED and isinstance(speed := event.fields.get("speed_after"), int | float)
    }


def _lessons(seen: Seen, learning: Learning) -> Iterator[tuple[str, Lesson]]:
    """Hear every node; yield the GPU and what was told of those that were saturated for long enough."""
    if seen.view is None:
        return
    rented = _rented(seen)
    beats, lessons = learning.beats, learning.lessons
    learning.beats, learning.lessons = {}, {}
    for node in seen.view.nodes:
        beat, engines = _beat(node), rented.get(node.node_id)
        # A node with other slots than its column runs what an earlier plan said: its estimate is not known any more.
        if beat is None or engines is None or engines.column.slots != node.slots:
            continue
        learning.beats[node.node_id] = beat
        lesson = lessons.get(node.node_id, Lesson())
        for stretch in stretches((beats.get(node.node_id, beat), beat)):
            expected = stretch.seconds * engines.tokens_per_s(node.running, seen)
            lesson = lesson.longer(stretch, expected)
        if lesson.stretch.seconds < GENERATIONS * engines.column.generation_s:
            learning.lessons[node.node_id] = lesson
        else:
            yield engines.offer.gpu, lesson


@dataclass(frozen=True)
class _Engines:
    """What a rollout node runs."""

    offer: Offer
    column: RolloutColumn

    def tokens_per_s(self, running: int, seen: Seen) -> float:
        """Return what they should generate together with so many samples running; prompts are read, not generated."""
        batch = max(1, round(running / self.column.replicas))
        column = self.column.model_copy(update={"batch": batch})
        workload = seen.run.workload
        return column_anew(column, self.offer, seen.market, workload).samples_per_s * workload.response_tokens


def _rented(seen: Seen) -> dict[NodeId, _Engines]:
    """Return the rollout nodes of the plan in force whose offers the market lists."""
    slots = {slot.name: slot for slot in seen.placement.slots} if seen.placement else {}
    found: dict[NodeId, _Engines] = {}
    for node in seen.nodes:
        slot, offer = slots.get(node.slot), seen.market.offer(node.offer_id)
        if slot is not None and slot.rollout is not None and offer is not None:
            found[node.id] = _Engines(offer, slot.rollout)
    return found


def _beat(node: NodeView) -> Beat | None:
    if node.heartbeat_at_s is None:
        return None
    return Beat(
        at_s=node.heartbeat_at_s,
        running=node.running,
        slots=node.slots,
        version=node.version,
        generated_tokens=node.generated_tokens,
        is_paused=node.is_paused,
    )


def _market_speed(gpu: str, seen: Seen) -> float:
    return seen.market.calibration.of(gpu, seen.run.workload.model).rollout_speed


def _factors(speeds: dict[str, float], seen: Seen) -> tuple[Factor, ...]:
    model_class = class_of(seen.run.workload.model)
    return tuple(
        Factor(gpu=gpu, phase=Phase.ROLLOUT, model_class=model_class, speed=speed, source=SOURCE)
        for gpu, speed in sorted(speeds.items())
    )


def _tell(seen: Seen, store: Store, learning: Learning) -> None:
    """Write speeds that moved into the run's history."""
    model_class = class_of(seen.run.workload.model)
    for gpu, after in sorted((learning.speeds or {}).items()):
        before = learning.told.get(gpu, _market_speed(gpu, seen))
        if abs(after / before - 1.0) <= TOLD_SHARE:
            continue
        Journal(store, seen).say(
            CALIBRATED,
            f"{gpu} in rollout of {model_class.value} models: {before:.2f} -> {after:.2f} of the estimate",
            gpu=gpu,
            phase=Phase.ROLLOUT.value,
            model_class=model_class.value,
            speed_before=before,
            speed_after=after,
        )
        learning.told[gpu] = after
