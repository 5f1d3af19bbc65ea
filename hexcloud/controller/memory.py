"""What a controller remembers between turns. Losing it costs a little patience, never money or a machine."""

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from hexcloud.controller.backoff import BackOff
from hexcloud.controller.triggers import ListPrice
from hexcloud.domain.fleet import Node, NodeId
from hexcloud.domain.ledger import CostKind
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.estimate.correction import NO_TIME, Beat, Stretch

Ask = tuple[str, float]
"""One call to the provider: what came up or failed together, and when it was asked for, run clock."""


@dataclass(frozen=True)
class Mark:
    """Up to when a node's bill is in the ledger, and at which price."""

    to_s: float
    usd_per_hour: float


class Requests:
    """Words from other threads (timer, CLI), taken by the next turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replans: list[str] = []
        self._stop: str | None = None

    def replan(self, reason: str) -> None:
        """Ask for a re-plan."""
        with self._lock:
            self._replans.append(reason)

    def stop(self, reason: str) -> None:
        """Ask for the end of the run; the first reason stays."""
        with self._lock:
            self._stop = self._stop or reason

    def take_replans(self) -> tuple[str, ...]:
        """Return the reasons since the last call, each once."""
        with self._lock:
            reasons = tuple(dict.fromkeys(self._replans))
            self._replans.clear()
        return reasons

    @property
    def stop_reason(self) -> str | None:
        """Why the run shall end, when somebody asked."""
        with self._lock:
            return self._stop


@dataclass
class Progress:
    """How far the run got and when it last got further; part of the controller's memory. Times are wall seconds."""

    best: tuple[int, int] = (-1, -1)
    """Highest checkpoint and version ever seen: what a recovery repeats is nothing new."""
    best_at_loss: tuple[int, int] | None = None
    """The same at the last loss of the trainer's head."""
    losses: int = 0
    """Losses of the trainer's head since something new was trained."""
    last_lost: Node | None = None
    lost_at: float | None = None
    """When training was first interrupted by a loss; None while it goes on."""
    stand: tuple[int, int, int] | None = None
    """Epoch, checkpoint and version at the last look."""
    since: float | None = None
    """Since when that stand has not changed although all who train were ready."""
    head_since: float | None = None
    """Since when it has not changed although the trainer was ready."""
    is_told: bool = False
    """Did the run's history say that it stalls?"""


@dataclass(frozen=True)
class Lesson:
    """Saturated time of one node, and what its engines were expected to make in it."""

    stretch: Stretch = NO_TIME
    expected_tokens: float = 0.0
    """By the market's calibration, its own factors included."""

    def longer(self, stretch: Stretch, expected_tokens: float) -> "Lesson":
        """Return the lesson with one more stretch."""
        return Lesson(self.stretch + stretch, self.expected_tokens + expected_tokens)

    @property
    def expected_tokens_per_s(self) -> float:
        """What the engines should have made, on average."""
        return self.expected_tokens / self.stretch.seconds


@dataclass
class Learning:
    """What the run's own engines teach of their GPUs' speed; part of the controller's memory."""

    beats: dict[NodeId, Beat] = field(default_factory=dict)
    """The last heartbeat of each node, from the coordinator that answers now."""
    lessons: dict[NodeId, Lesson] = field(default_factory=dict)
    """What each node told since it was last learned from."""
    speeds: dict[str, float] | None = None
    """GPU -> measured over estimated speed of its engines; None until read from the run's history."""
    told: dict[str, float] = field(default_factory=dict)
    """The same, as the run's history tells it."""


class Phase(NamedTuple):
    """A step of a launch, and since when it lasts."""

    name: str
    since: float


@dataclass
class Ending:
    """What the provider said to the wish that a machine ends."""

    since: float
    """When it was first asked."""
    is_heard: bool = False
    """Did it say yes the last time?"""
    refusals: int = 0
    """In a row."""
    said: str = ""
    """Why it said no the last time."""
    told_at: float | None = None
    """When the user was last alarmed."""


@dataclass
class Memory:
    """Caches, counters and since-whens. Times are wall seconds unless a name says otherwise."""

    market: Market | None = None
    """The last good one."""
    prices: dict[OfferId, float] = field(default_factory=dict)
    """The last price known of every offer ever listed."""
    marks: dict[tuple[NodeId, CostKind], Mark] | None = None
    """None until read from the ledger."""
    baseline: dict[OfferId, ListPrice] = field(default_factory=dict)
    """List prices at the last re-plan: what a price shift is measured against."""
    unusable: frozenset[OfferId] = frozenset()
    """Offers that no price makes useful, by the last plan."""
    blocked: frozenset[OfferId] = frozenset()
    """Pools that were blocked at the last turn."""
    pools: BackOff = field(default_factory=lambda: BackOff(first_s=180.0, most_s=3600.0, forget_s=3600.0))
    """Refusals by pool, run clock. Karpenter, too, first waits 3 minutes."""
    limits: BackOff = field(default_factory=lambda: BackOff(first_s=3600.0, most_s=21600.0, forget_s=86400.0))
    """Refusals by account limit, run clock: it changes by a ticket or by what else ends, neither within minutes."""
    calls: BackOff = field(default_factory=lambda: BackOff(first_s=1.0, most_s=60.0, forget_s=60.0))
    """Provider calls that were refused, by node and by account."""
    failures: dict[NodeId, int] = field(default_factory=dict)
    """Launches of a node that failed for a reason nobody knows."""
    failed_starts: dict[OfferId, set[Ask]] = field(default_factory=dict)
    """Calls to a pool in a row of which a machine went before it was ready."""
    phases: dict[NodeId, Phase] = field(default_factory=dict)
    """Where the launch of a gang is, by its first node."""
    endings: dict[NodeId, Ending] = field(default_factory=dict)
    """Machines whose end was asked for."""
    launched_at: dict[NodeId, float] = field(default_factory=dict)
    drained_at: dict[NodeId, float] = field(default_factory=dict)
    judged_links: set[tuple[NodeId, NodeId]] = field(default_factory=set)
    """Links inside gangs whose first measurement was looked at."""
    last_word: dict[NodeId, float] = field(default_factory=dict)
    """When a node was last heard of, through the coordinator."""
    coordinator: tuple[NodeId, int] | None = None
    """Which coordinator answered last: its node and epoch. A head lost before any checkpoint repeats the epoch."""
    epoch_since: float = 0.0
    answered_at: float | None = None
    """When the coordinator last answered, or when this controller began to listen."""
    is_view_unreadable: bool = False
    """Did the coordinator last answer with what cannot be read?"""
    admitted: set[NodeId] = field(default_factory=set)
    revoked: set[NodeId] = field(default_factory=set)
    """Both since this coordinator and epoch began."""
    refused_slots: set[str] = field(default_factory=set)
    """Slots that the budget did not allow to fill, said once."""
    placed_at: float = 0.0
    """When the placement last changed."""
    stopping_at: float | None = None
    credentials: str = ""
    """What the provider said when it refused our account."""
    progress: Progress = field(default_factory=Progress)
    learning: Learning = field(default_factory=Learning)
    pending: list[str] = field(default_factory=list)
    """Reasons to re-plan that arose while applying."""
    requests: Requests = field(default_factory=Requests)
