"""Experience: what became of our machines, as stays in pools, and put on the offers of those pools."""

from collections.abc import Callable, Iterable

from hexcloud.controller.launching import SOLD_OUT
from hexcloud.controller.life import LATE, SILENT, VANISHED
from hexcloud.domain.calibration import Calibration
from hexcloud.domain.fleet import LIVE, Node, NodeStatus
from hexcloud.domain.messages import INTERRUPTION
from hexcloud.domain.offer import Offer
from hexcloud.domain.stay import End, Stay
from hexcloud.estimate.pools import with_experience
from hexcloud.ports import Store

FRESH_S = 60.0
"""How long a reading of the store is good for."""


class Experience:
    """Puts what our own fleet learned of each pool on its offer. Reads the store at most once in FRESH_S."""

    def __init__(self, store: Store, calibration: Calibration, now_s: Callable[[], float]) -> None:
        """`now_s`: the run clock of real providers, seconds since the epoch."""
        self._store = store
        self._calibration = calibration
        self._now_s = now_s
        self._stays: tuple[Stay, ...] = ()
        self._read_at_s: float | None = None

    def __call__(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """Return the offers, in their order, as experience has it. Raises StoreError."""
        return with_experience(offers, self.stays(), self._calibration, self._now_s())

    def stays(self) -> tuple[Stay, ...]:
        """Return the stays of every run on a real provider. Raises StoreError."""
        now_s = self._now_s()
        if self._read_at_s is None or not 0.0 <= now_s - self._read_at_s < FRESH_S:
            self._stays, self._read_at_s = fleet_stays(self._store), now_s
        return self._stays


def fleet_stays(store: Store) -> tuple[Stay, ...]:
    """Return the stays of every run on a real provider. Raises StoreError.

    A run was looked after at least until its last event; each scheduled re-plan leaves one.
    """
    stays: list[Stay] = []
    for run in store.runs():
        if run.spec.is_real:  # processes on this computer teach nothing about a cloud
            last = store.last_event(run.id)
            stays += stays_of(store.nodes(run.id), 0.0 if last is None else last.at_s)
    return tuple(stays)


def stays_of(nodes: Iterable[Node], watched_until_s: float) -> tuple[Stay, ...]:
    """Return the stays of a run's nodes; a node that tells nothing of its pool gives none.

    What no controller saw end is taken to have stood until `watched_until_s`, run clock, and not a day longer.
    """
    return tuple(stay for node in nodes if (stay := _stay(node, watched_until_s)) is not None)


def _stay(node: Node, watched_until_s: float) -> Stay | None:
    end = _end(node)
    if end is None and (node.status not in LIVE or node.status is NodeStatus.REQUESTED):
        return None
    return Stay(
        offer_id=node.offer_id,
        asked_at_s=node.requested_at_s,
        ready_at_s=node.ready_at_s,
        until_s=watched_until_s if end is None or node.gone_at_s is None else node.gone_at_s,
        end=end,
    )


def _end(node: Node) -> End | None:
    """Return how a node ended; None for one that stands, or whose end says nothing of its pool."""
    if node.cause.startswith(SOLD_OUT):
        return End.REFUSED
    is_lost = node.cause.startswith((SILENT, LATE, VANISHED, INTERRUPTION))
    if node.ready_at_s is None:
        return End.NEVER_READY if is_lost else None
    if is_lost:
        return End.TAKEN
    return None if node.status in LIVE else End.RELEASED
