"""anew: what slots that were planned earlier make by today's calibration, which may have learned since."""

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Placement, RolloutColumn, Slot
from hexcloud.domain.workload import Workload
from hexcloud.estimate.rollout import Replica
from hexcloud.planner.columns import across_column, rollout_column


def column_anew(column: RolloutColumn, offer: Offer, market: Market, workload: Workload) -> RolloutColumn:
    """Return a column of an offer with today's rate and generation time."""
    if column.nodes > 1:
        return across_column(offer, column.nodes, column.batch, market, workload)
    efficiency = market.calibration.of(offer.gpu, workload.model)
    replica = Replica(market.gpus[offer.gpu], efficiency, tp=column.tp, batch=column.batch)
    return rollout_column(offer, replica, workload)


def placement_anew(placement: Placement, market: Market, workload: Workload) -> Placement:
    """Return a placement with today's rates of its rollout slots.

    Else the judge would take a fleet that makes less than was thought for one that meets its target. A slot whose offer
    the market no longer lists stays as it was planned.
    """
    return Placement(slots=tuple(_slot_anew(slot, market, workload) for slot in placement.slots))


def _slot_anew(slot: Slot, market: Market, workload: Workload) -> Slot:
    offer = market.offer(slot.offer_id)
    if slot.rollout is None or offer is None:
        return slot
    return slot.model_copy(update={"rollout": column_anew(slot.rollout, offer, market, workload)})
