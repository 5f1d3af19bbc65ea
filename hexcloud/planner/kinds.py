"""kinds: the columns of many offers. Equal machines share theirs, so a whole market's fit into a few thousand."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Columns, RolloutColumn, TrainerColumn

Ladder = tuple[RolloutColumn, ...]
"""Every way to roll out on one kind of machine; the offer's id in it means nothing."""
Crew = tuple[TrainerColumn, ...]
"""Every gang of one kind of machine, fewest nodes first; the offer's id in it means nothing."""


@dataclass(frozen=True)
class Kinds:
    """What can be done with each offer, whatever the throughput."""

    ladders: tuple[Ladder, ...]
    crews: tuple[Crew, ...]
    of_offers: Mapping[OfferId, tuple[int, int]]
    """By offer, sorted by id: numbers of its ladder and its crew."""

    @classmethod
    def of(cls, columns: Columns) -> "Kinds":
        """Return given columns, each offer a kind of its own."""
        ladders: dict[OfferId, list[RolloutColumn]] = {}
        crews: dict[OfferId, list[TrainerColumn]] = {}
        for column in columns.rollout:
            ladders.setdefault(column.offer_id, []).append(column)
        for gang in columns.trainer:
            crews.setdefault(gang.offer_id, []).append(gang)
        names = sorted({*ladders, *crews})
        return cls(
            ladders=tuple(_ladder(ladders.get(name, ())) for name in names),
            crews=tuple(_crew(crews.get(name, ())) for name in names),
            of_offers={name: (number, number) for number, name in enumerate(names)},
        )

    @cached_property
    def rollout(self) -> tuple[RolloutColumn, ...]:
        """All rollout columns, sorted by offer, degree and batch: over a hundred thousand on a whole market."""
        return tuple(column for name in self.of_offers for column in self.rollout_of(name))

    @cached_property
    def trainer(self) -> tuple[TrainerColumn, ...]:
        """All gangs, sorted by offer and nodes."""
        return tuple(gang for name in self.of_offers for gang in self.gangs_of(name))

    def rollout_of(self, name: OfferId) -> Iterator[RolloutColumn]:
        """Yield the rollout columns of one offer."""
        return (column.twin(offer_id=name) for column in self.ladders[self.of_offers[name][0]])

    def gangs_of(self, name: OfferId) -> Iterator[TrainerColumn]:
        """Yield the gangs of one offer."""
        return (gang.twin(offer_id=name) for gang in self.crews[self.of_offers[name][1]])

    def rollout_like(self, column: RolloutColumn) -> RolloutColumn | None:
        """Return the column of the same offer, degree and batch; None when there is none."""
        ladder, _ = self.of_offers.get(column.offer_id, (None, None))
        rungs = () if ladder is None else self.ladders[ladder]
        own = (one for one in rungs if (one.tp, one.batch) == (column.tp, column.batch))
        return next((one.twin(offer_id=column.offer_id) for one in own), None)

    def gang_like(self, gang: TrainerColumn) -> TrainerColumn | None:
        """Return the gang of the same offer, nodes and layout; None when there is none."""
        _, crew = self.of_offers.get(gang.offer_id, (None, None))
        gangs = () if crew is None else self.crews[crew]
        own = (one for one in gangs if (one.nodes, one.layout.kind) == (gang.nodes, gang.layout.kind))
        return next((one.twin(offer_id=gang.offer_id) for one in own), None)

    def only(self, names: Iterable[OfferId]) -> "Kinds":
        """Return the columns of some of the offers."""
        wanted = set(names)
        return replace(self, of_offers={name: kind for name, kind in self.of_offers.items() if name in wanted})

    def without_gangs(self) -> "Kinds":
        """Return the rollout columns alone."""
        return replace(self, crews=tuple(() for _ in self.crews))

    def with_twin(self, name: OfferId, twin: OfferId) -> "Kinds":
        """Return the columns with one offer more, which rolls out as another does and does not train."""
        ladder, _ = self.of_offers[name]
        offers = {**self.of_offers, twin: (ladder, len(self.crews))}
        return replace(self, crews=(*self.crews, ()), of_offers=dict(sorted(offers.items())))


def _ladder(columns: Iterable[RolloutColumn]) -> Ladder:
    return tuple(sorted(columns, key=lambda column: (column.tp, column.batch)))


def _crew(gangs: Iterable[TrainerColumn]) -> Crew:
    return tuple(sorted(gangs, key=lambda gang: (gang.nodes, gang.layout.kind)))
