"""place: counts become named slots. What runs keeps its name; a new slot gets a number no slot of the run has had."""

from collections.abc import Iterator
from itertools import count

from hexcloud.domain.errors import PlanError
from hexcloud.domain.fleet import FleetState, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation, Placement, Role, Slot, SlotName
from hexcloud.planner.diff import seniority


def place(allocation: Allocation, fleet: FleetState, market: Market) -> Placement:
    """Name a slot for every machine of an allocation, each at today's price.

    Running nodes of the same role and offer keep their slots, the longest ready first; a draining node is on its way
    out and keeps nothing. Raises PlanError for an offer the market does not list.
    """
    running = _Running(fleet)
    numbers = count(_first_unused(fleet))
    prices = {offer.id: offer.usd_per_hour for offer in market.offers}
    slots: list[Slot] = []
    gang = allocation.trainer.column
    for rank, name in enumerate(running.names(Role.TRAINER, gang.offer_id, gang.nodes, numbers)):
        price = _price(prices, gang.offer_id)
        slots.append(
            Slot(
                name=name,
                role=Role.TRAINER,
                offer_id=gang.offer_id,
                rank=rank,
                usd_per_hour=price,
                trainer=gang,
            )
        )
    for share in allocation.rollout:
        column = share.column
        price = _price(prices, column.offer_id)
        for name in running.names(Role.ROLLOUT, column.offer_id, share.count, numbers):
            slots.append(
                Slot(name=name, role=Role.ROLLOUT, offer_id=column.offer_id, usd_per_hour=price, rollout=column)
            )
    return Placement(slots=tuple(sorted(slots, key=lambda slot: slot.name)))


class _Running:
    """Slots that run now, handed out once each."""

    def __init__(self, fleet: FleetState) -> None:
        self._slots: dict[tuple[Role, OfferId], list[SlotName]] = {}
        for node in sorted(fleet.live(), key=seniority):
            if node.status is NodeStatus.DRAINING:
                continue
            names = self._slots.setdefault((node.role, node.offer_id), [])
            if node.slot not in names:
                names.append(node.slot)

    def names(self, role: Role, offer_id: OfferId, wanted: int, numbers: Iterator[int]) -> list[SlotName]:
        """Return `wanted` names: running slots first, then fresh ones."""
        here = self._slots.get((role, offer_id), [])
        kept, self._slots[role, offer_id] = here[:wanted], here[wanted:]
        return kept + [SlotName(f"{role.value}-{next(numbers)}") for _ in range(wanted - len(kept))]


def _first_unused(fleet: FleetState) -> int:
    used = [int(node.slot.rpartition("-")[2]) + 1 for node in fleet.nodes]
    return max([fleet.next_slot, *used])


def _price(prices: dict[OfferId, float], offer_id: OfferId) -> float:
    if offer_id not in prices:
        raise PlanError(f"the allocation names {offer_id}, which the market does not list")
    return prices[offer_id]
