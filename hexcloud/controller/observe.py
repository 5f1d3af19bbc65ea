"""Observe: one turn's picture of market, machines and run. Whatever does not answer is None, never a guess."""

from dataclasses import dataclass

from hexcloud.controller.memory import Memory
from hexcloud.controller.outside import Ports
from hexcloud.controller.prices import Prices
from hexcloud.domain.errors import (
    CredentialsError,
    EngineError,
    MarketError,
    PartListError,
    ProvisionError,
    UnreadableError,
)
from hexcloud.domain.fleet import Billed, FleetState, MeasuredLink, Node, NodeId, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.messages import NodeView, RunView
from hexcloud.domain.offer import OfferId, place_of
from hexcloud.domain.plan import ExecutionPlan, Placement
from hexcloud.domain.run import RunRecord
from hexcloud.estimate.risk import startup_s
from hexcloud.ports import Biller, Coordinator


@dataclass(frozen=True)
class Seen:
    """What one turn works with."""

    run: RunRecord
    now_s: float
    """Run clock, seconds since the epoch."""
    wall_s: float
    market: Market
    prices: Prices
    nodes: tuple[Node, ...]
    """Every node the run ever had."""
    listed: frozenset[NodeId] | None
    """What exists and bills, by the provider's word, where it answered; None when it did not answer at all."""
    coordinator: Coordinator | None
    view: RunView | None
    last_view: RunView | None
    """The view, or the last one stored when the coordinator does not answer."""
    accepted: tuple[ExecutionPlan, Placement] | None
    """The plan in force."""
    billed: tuple[Billed, ...] = ()
    """When machines began and ended to bill, as far as the provider says; nothing when it did not answer."""
    unreadable: str = ""
    """Why the coordinator's view cannot be read although it answers: it lives, and nobody is to be ended for that."""
    silent: frozenset[str] = frozenset()
    """`cloud/region` of which the provider could not say what exists there."""

    @property
    def is_whole(self) -> bool:
        """Did the provider answer for every place?"""
        return self.listed is not None and not self.silent

    def is_listed(self, node: Node) -> bool | None:
        """Does a machine exist? None: nobody knows."""
        if self.listed is not None and node.id in self.listed:
            return True
        return None if self.listed is None or self.is_silent(node.offer_id) else False

    def is_silent(self, offer_id: OfferId) -> bool:
        """Did the offer's region not say what exists there?"""
        place = place_of(offer_id)
        return f"{place.cloud}/{place.region}" in self.silent

    @property
    def placement(self) -> Placement | None:
        """What the fleet should be; None before the first plan."""
        return self.accepted[1] if self.accepted else None

    @property
    def is_trained(self) -> bool:
        """Are all steps trained, so that only the output remains to be written? Rollout nodes then exit unasked."""
        return self.last_view is not None and self.last_view.version >= self.run.spec.steps

    def node_view(self, node_id: NodeId) -> NodeView | None:
        """Return a node as the coordinator knows it."""
        nodes = self.view.nodes if self.view else ()
        return next((node for node in nodes if node.node_id == node_id), None)

    def startup_s(self, offer_id: OfferId) -> float:
        """Return the run seconds from the provider's yes to a machine's first heartbeat, as far as its pool taught."""
        return startup_s(self.market.offer(offer_id), self.market.calibration)

    def standing(self) -> tuple[Node, ...]:
        """Return the nodes that the provider has not confirmed as gone."""
        return tuple(node for node in self.nodes if node.status is not NodeStatus.GONE)


def observe(run: RunRecord, ports: Ports, memory: Memory) -> Seen:
    """Ask everybody once. Raises StoreError, and MarketError while no market was ever read."""
    now_s, wall_s = ports.clock.now_s(), ports.clock.wall_s()
    nodes, accepted = ports.store.nodes(run.id), ports.store.plan(run.id)
    market = _market(now_s, ports, memory)
    asked = {node.offer_id: node.usd_per_hour for node in nodes if node.usd_per_hour is not None}
    planned = {slot.offer_id: slot.usd_per_hour for slot in accepted[1].slots} if accepted else {}
    memory.prices = asked | planned | memory.prices
    memory.prices |= {offer.id: offer.usd_per_hour for offer in market.offers}
    coordinator, view, unreadable = _coordinator(ports)
    listed, silent = _listed(nodes, run, ports, memory)
    biller = ports.provisioner if isinstance(ports.provisioner, Biller) else None
    _listen(view, wall_s, memory, is_answered=bool(view or unreadable))
    return Seen(
        run=run,
        now_s=now_s,
        wall_s=wall_s,
        market=market,
        prices=Prices(market, memory.prices),
        nodes=nodes,
        listed=listed,
        coordinator=coordinator,
        view=view,
        unreadable=unreadable,
        last_view=view or ports.store.view(run.id),
        accepted=accepted,
        billed=biller.billed() if biller and listed is not None else (),
        silent=silent,
    )


def fleet_state(seen: Seen, blocks: dict[OfferId, str], ports: Ports) -> FleetState:
    """Return the fleet as the planner may use it: nodes that drain are as good as gone and fill no slot."""
    nodes = tuple(node for node in seen.standing() if node.status is not NodeStatus.DRAINING)
    used = [node.slot for node in seen.nodes]
    used += [slot.name for slot in seen.placement.slots] if seen.placement else []
    numbers = [int(tail) for name in used if (tail := name.rpartition("-")[2]).isdigit()]
    return FleetState(
        nodes=nodes,
        links=measured_links(seen, ports),
        next_slot=max(numbers, default=-1) + 1,
        sold_out=blocks,
    )


def _market(now_s: float, ports: Ports, memory: Memory) -> Market:
    try:
        memory.market = ports.market.market(now_s)
    except MarketError:
        if memory.market is None:
            raise
    return memory.market


def _listed(
    nodes: tuple[Node, ...], run: RunRecord, ports: Ports, memory: Memory
) -> tuple[frozenset[NodeId] | None, frozenset[str]]:
    """Return what is listed, and the places of which nothing is known."""
    try:
        return frozenset(ports.provisioner.list_nodes(run.id)), frozenset()
    except PartListError as error:
        used = {place_of(node.offer_id) for node in nodes if node.status is not NodeStatus.GONE}
        refused = (
            str(error.silent[place]) for place in sorted(_refusing(error) & {f"{a.cloud}/{a.region}" for a in used})
        )
        memory.credentials = next(refused, memory.credentials)  # where nothing of ours is left, it is no matter
        return frozenset(NodeId(node) for node in error.listed), frozenset(error.silent)
    except CredentialsError as error:
        memory.credentials = str(error)
    except ProvisionError:
        pass  # no word is not the word that nothing runs
    return None, frozenset()


def _refusing(error: PartListError) -> set[str]:
    return {place for place, why in error.silent.items() if isinstance(why, CredentialsError)}


def _coordinator(ports: Ports) -> tuple[Coordinator | None, RunView | None, str]:
    """Return the coordinator where it answers, its view, and why that cannot be read."""
    try:
        coordinator = ports.coordinator()
    except EngineError:
        return None, None, ""
    try:
        return coordinator, coordinator.view(), ""
    except UnreadableError as error:
        return coordinator, None, str(error)
    except EngineError:
        return None, None, ""


def _listen(view: RunView | None, wall_s: float, memory: Memory, is_answered: bool) -> None:
    """Note who was heard of when. A new head or epoch is a coordinator that knows nobody yet."""
    if view is None:
        memory.answered_at = wall_s if is_answered else memory.answered_at or wall_s
        return
    if (view.head, view.epoch) != memory.coordinator:
        memory.coordinator, memory.epoch_since = (view.head, view.epoch), wall_s
        memory.admitted.clear()
        memory.revoked.clear()
        memory.learning.beats.clear()
    memory.answered_at = wall_s
    for node in view.nodes:
        memory.last_word[node.node_id] = wall_s - node.silent_s


def measured_links(seen: Seen, ports: Ports) -> tuple[MeasuredLink, ...]:
    """Name the slots at both ends, and turn emulated bandwidth back into that of the planned network.

    A pair of which neither can reach the other has 0 GB/s.
    """
    if seen.view is None:
        return ()
    slots = {node.id: node.slot for node in seen.nodes}
    at_address = {node.address: slots.get(node.node_id) for node in seen.view.nodes}
    emulation = ports.emulation
    shrink, scale = 1.0, 1.0
    if emulation:
        scale = emulation.clock_scale
        shrink = emulation.local_weight_bytes / seen.run.workload.version_bytes * scale
    links = []
    ends = [(slots.get(report.node_id), at_address.get(report.target)) for report in seen.view.links]
    joined = {frozenset(pair) for pair, report in zip(ends, seen.view.links, strict=True) if report.gb_per_s > 0}
    for (source, target), report in zip(ends, seen.view.links, strict=True):
        if source and target and (report.gb_per_s > 0 or frozenset((source, target)) not in joined):
            links.append(
                MeasuredLink(
                    source=source,
                    target=target,
                    gb_per_s=report.gb_per_s / shrink,
                    latency_ms=report.latency_ms * scale,
                )
            )
    return tuple(links)
