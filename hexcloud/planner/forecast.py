"""forecast: what an execution plan promises, so that the report can compare it with what was achieved."""

from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Allocation, Forecast, Placement, Role, SlotName, WeightRoute
from hexcloud.domain.workload import Workload
from hexcloud.estimate.freshness import versions_old


def forecast(
    placement: Placement,
    allocation: Allocation,
    routes: tuple[WeightRoute, ...],
    machines: dict[SlotName, Offer],
    workload: Workload,
) -> Forecast:
    """Return throughput, price per hour (rent and egress), step time, staleness and weight sync of a plan."""
    samples_per_s = allocation.samples_per_s
    spread_s = {slot.name: slot.rollout.spread_s for slot in placement.slots if slot.rollout is not None}
    arrivals = arrivals_s(routes, machines, workload.version_bytes)
    arrival_s = {name: seconds + spread_s.get(name, 0.0) for name, seconds in arrivals.items()}
    return Forecast(
        samples_per_s=samples_per_s,
        tokens_per_s=samples_per_s * workload.tokens_per_sample,
        usd_per_hour=allocation.rent_usd_per_hour + allocation.egress_usd_per_hour,
        step_s=workload.samples_per_step / samples_per_s,
        staleness=_staleness(placement, allocation, arrival_s, workload),
        weight_sync_s=max(arrival_s.values(), default=0.0),
    )


def weight_sync_s(routes: tuple[WeightRoute, ...], machines: dict[SlotName, Offer], weight_bytes: float) -> float:
    """Return seconds until the slowest rollout slot has one full copy of the weights."""
    return max(arrivals_s(routes, machines, weight_bytes).values(), default=0.0)


def arrivals_s(
    routes: tuple[WeightRoute, ...], machines: dict[SlotName, Offer], weight_bytes: float
) -> dict[SlotName, float]:
    """Return seconds until each slot has one full copy of the weights.

    A source serves all its targets at once, so they share its network. A slot that feeds others has its copy first.
    """
    targets_of: dict[SlotName, list[WeightRoute]] = {}
    for route in routes:
        targets_of.setdefault(route.source, []).append(route)
    fed = {route.target for route in routes}
    heads = [source for source in targets_of if source not in fed]
    arrival_s = dict.fromkeys(heads, 0.0)
    queue = list(heads)
    for source in queue:
        served = targets_of.get(source, [])
        for route in served:
            gb_per_s = min(route.gb_per_s, machines[source].network_gb_per_s / len(served))
            arrival_s[route.target] = arrival_s[source] + weight_bytes / (gb_per_s * 1e9)
            queue.append(route.target)
    return arrival_s


def _staleness(
    placement: Placement, allocation: Allocation, arrival_s: dict[SlotName, float], workload: Workload
) -> float:
    """Expected versions between a sample's oldest token and its training step, at most eta.

    Rollout that outruns the trainer fills the queue to the admission bound, so samples wait until they are eta old.
    Else a mean sample is as old as the rule of reach says (`estimate.freshness`), with its mean time by Little's law.
    """
    heads = (slot for slot in placement.role(Role.ROLLOUT) if slot.rank == 0)
    slots = [(slot.name, slot.rollout) for slot in heads if slot.rollout is not None]
    made = sum(column.samples_per_s for _, column in slots)
    if made > allocation.trainer.column.samples_per_s:
        return float(workload.eta)
    step_s = workload.samples_per_step / allocation.samples_per_s
    ages = (
        column.samples_per_s
        * versions_old(workload, column.tp, column.slots / column.samples_per_s, arrival_s.get(name, 0.0), step_s)
        for name, column in slots
    )
    return min(float(workload.eta), sum(ages) / made)
