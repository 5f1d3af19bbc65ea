"""place: counts become named slots. What runs keeps its name; a new slot gets a number no slot of the run has had."""

from collections.abc import Iterator, Sequence
from itertools import count

from hexcloud.domain.errors import PlanError
from hexcloud.domain.fleet import FleetState, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation, Placement, Role, RolloutColumn, Slot, SlotName
from hexcloud.planner.diff import seniority


def place(allocation: Allocation, fleet: FleetState, market: Market) -> Placement:
    """Name a slot for every machine of an allocation, each at today's price.

    Running nodes of the same role and offer keep their slots, the longest ready first; a draining node is on its way
    out and keeps nothing. Raises PlanError for an offer the market does not list.
    """
    running = _Running(fleet)
    numbers = count(_first_unused(fleet))
    prices = {offer.id: offer.usd_per_hour for offer in market.offers}
    gang = allocation.trainer.column
    price = _price(prices, gang.offer_id)
    trainer = Slot(name=SlotName(""), role=Role.TRAINER, offer_id=gang.offer_id, usd_per_hour=price, trainer=gang)
    slots = _ranked(trainer, running.names(Role.TRAINER, gang.offer_id, gang.nodes, numbers))
    for share in allocation.rollout:
        column = share.column
        facts = {"offer_id": column.offer_id, "usd_per_hour": _price(prices, column.offer_id), "rollout": column}
        for names in running.units(column, share.count, numbers):
            head = names[0] if len(names) > 1 else None
            slots += _ranked(
                Slot.model_validate({"name": names[0], "role": Role.ROLLOUT, "head": head, **facts}), names
            )
    return Placement(slots=tuple(sorted(slots, key=lambda slot: slot.name)))


def _ranked(one: Slot, names: Sequence[SlotName]) -> list[Slot]:
    """Return slots like one, with these names, in rank order."""
    return [one.model_copy(update={"name": name, "rank": rank}) for rank, name in enumerate(names)]


class _Running:
    """Slots that run now, handed out once each; those of a replica together, and not at all when one is missing."""

    def __init__(self, fleet: FleetState) -> None:
        self._slots: dict[tuple[Role, OfferId], list[SlotName]] = {}
        self._replicas: dict[tuple[OfferId, int], list[tuple[SlotName, ...]]] = {}
        nodes = [node for node in sorted(fleet.live(), key=seniority) if node.status is not NodeStatus.DRAINING]
        for node in nodes:
            names = self._slots.setdefault((node.role, node.offer_id), [])
            if node.head is None and node.slot not in names:
                names.append(node.slot)
        for head in (node for node in nodes if node.slot == node.head):
            members = sorted((node for node in nodes if node.head == head.slot), key=lambda node: node.rank)
            slots = tuple(dict.fromkeys(node.slot for node in members))
            if len(slots) == head.gang:
                self._replicas.setdefault((head.offer_id, head.gang), []).append(slots)

    def units(self, column: RolloutColumn, wanted: int, numbers: Iterator[int]) -> list[tuple[SlotName, ...]]:
        """Return the names of `wanted` units, each in rank order: running ones first, then fresh ones."""
        if column.nodes == 1:
            return [(name,) for name in self.names(Role.ROLLOUT, column.offer_id, wanted, numbers)]
        key = (column.offer_id, column.nodes)
        here = self._replicas.get(key, [])
        kept, self._replicas[key] = here[:wanted], here[wanted:]
        fresh = (tuple(_fresh(Role.ROLLOUT, column.nodes, numbers)) for _ in range(wanted - len(kept)))
        return [*kept, *fresh]

    def names(self, role: Role, offer_id: OfferId, wanted: int, numbers: Iterator[int]) -> list[SlotName]:
        """Return `wanted` names: running slots first, then fresh ones."""
        here = self._slots.get((role, offer_id), [])
        kept, self._slots[role, offer_id] = here[:wanted], here[wanted:]
        return kept + _fresh(role, wanted - len(kept), numbers)


def _fresh(role: Role, count: int, numbers: Iterator[int]) -> list[SlotName]:
    return [SlotName(f"{role.value}-{next(numbers)}") for _ in range(count)]


def _first_unused(fleet: FleetState) -> int:
    used = [int(node.slot.rpartition("-")[2]) + 1 for node in fleet.nodes]
    return max([fleet.next_slot, *used])


def _price(prices: dict[OfferId, float], offer_id: OfferId) -> float:
    if offer_id not in prices:
        raise PlanError(f"the allocation names {offer_id}, which the market does not list")
    return prices[offer_id]
