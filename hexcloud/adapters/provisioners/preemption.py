"""Preemptions: which node each preemption of the price trace takes. Each is played once, ever."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hexcloud.adapters.provisioners.node_dir import write_whole
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId


class Preemption(Protocol):
    """The provider takes machines back."""

    @property
    def count(self) -> int:
        """How many."""
        ...

    def touches(self, offer_id: OfferId) -> bool:
        """Is this pool meant?"""
        ...


class PoolEvents(Protocol):
    """What befalls the pools of the emulated market; a price trace knows. Run-clock seconds since the run began."""

    def is_sold_out(self, offer_id: OfferId, at_s: float) -> bool:
        """Does the pool give no machine at this moment?"""
        ...

    def preemptions(self, from_s: float, to_s: float) -> Sequence[Preemption]:
        """Return the preemptions in (from_s, to_s], in order."""
        ...


class _Taken(Frozen):
    until_s: float
    """Moment up to which the events were played."""
    victims: tuple[NodeId, ...] = ()


class Preemptions:
    """Plays preemptions. Decisions are on disk before anybody acts on them, so a restart repeats none."""

    def __init__(self, path: Path, events: PoolEvents) -> None:
        self._path = path
        self._events = events

    def victims(self, at_s: float, alive: Mapping[NodeId, OfferId]) -> tuple[NodeId, ...]:
        """Play on to this moment (run-clock seconds since the run began); return every node ever taken.

        `alive` maps the living nodes to their pools. A pool's nodes are taken in order of id; a pool without nodes
        loses none. The first call ever begins to play at its own moment.
        """
        taken = self._read()
        if taken is None:
            write_whole(self._path, _Taken(until_s=at_s).model_dump_json())
            return ()
        preemptions = self._events.preemptions(taken.until_s, at_s)
        victims = list(taken.victims)
        for preemption in preemptions:
            pool = (node for node, offer in alive.items() if preemption.touches(offer) and node not in victims)
            victims.extend(sorted(pool)[: preemption.count])
        if preemptions:
            write_whole(self._path, _Taken(until_s=at_s, victims=tuple(victims)).model_dump_json())
        return tuple(victims)

    def _read(self) -> _Taken | None:
        try:
            return _Taken.model_validate_json(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
