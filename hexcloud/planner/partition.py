"""partition: which machine does what with which. The second phase of AReaL-Hex (arXiv 2511.00796, section 4.3).

On a market the MILP has fixed the counts per role, so what is left is which of the running machines form the gang, the
rank order (`ring`) and the weight routes (`routes`). For a fixed fleet `cut` also finds the two sides; `fleet_split`
drives it.
"""

from hexcloud.domain.fleet import FleetState, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation, ExecutionPlan, Placement, Role, Slot, SlotName
from hexcloud.domain.workload import Workload
from hexcloud.planner.forecast import forecast
from hexcloud.planner.links import link_graph
from hexcloud.planner.ring import choose_gang, rank_order
from hexcloud.planner.routes import weight_routes


def partition(
    placement: Placement, allocation: Allocation, market: Market, workload: Workload, fleet: FleetState
) -> ExecutionPlan:
    """Choose and order the gang, route the weights and forecast the run. Measured links win over forecast ones."""
    offers = {offer.id: offer for offer in market.offers}
    spare = _spare_trainers(placement, fleet)
    known = {slot.name: offers[slot.offer_id] for slot in placement.slots}
    names = tuple(slot.name for slot in _gang(placement))
    known |= dict.fromkeys(spare, known[names[0]])
    links = link_graph(known, market, fleet)
    ranks = rank_order(links, choose_gang(links, names, spare))
    placement = _with_gang(placement, ranks)
    machines = {slot.name: known[slot.name] for slot in placement.slots}
    # A replica's head hands every version on to its other machines itself.
    rollout = tuple(slot.name for slot in placement.role(Role.ROLLOUT) if slot.rank == 0)
    routes = weight_routes(links, ranks[0], rollout, machines)
    return ExecutionPlan(
        placement=placement,
        ranks=ranks,
        routes=routes,
        forecast=forecast(placement, allocation, routes, machines, workload),
        allocation=allocation,
    )


def _gang(placement: Placement) -> tuple[Slot, ...]:
    """Return the trainer's slots, head first."""
    return tuple(sorted(placement.role(Role.TRAINER), key=lambda slot: (slot.rank, slot.name)))


def _spare_trainers(placement: Placement, fleet: FleetState) -> tuple[SlotName, ...]:
    """Return ready trainers of the gang's offer that the placement leaves out: a gang that shrinks may keep any."""
    wanted, offer_id = {slot.name for slot in placement.slots}, _gang(placement)[0].offer_id
    ready = (node for node in fleet.nodes if node.status is NodeStatus.READY and node.role is Role.TRAINER)
    return tuple(sorted({node.slot for node in ready if node.offer_id == offer_id and node.slot not in wanted}))


def _with_gang(placement: Placement, ranks: tuple[SlotName, ...]) -> Placement:
    """Return the placement with these machines as its gang, in this order. A spare takes the place of another one."""
    gang = {slot.name: slot for slot in _gang(placement)}
    left = [slot for name, slot in gang.items() if name not in ranks]
    slots = [gang.get(name) or left.pop().model_copy(update={"name": name}) for name in ranks]
    ranked = (slot.model_copy(update={"rank": rank}) for rank, slot in enumerate(slots))
    return Placement(slots=tuple(sorted((*ranked, *placement.role(Role.ROLLOUT)), key=lambda slot: slot.name)))
