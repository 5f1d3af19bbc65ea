"""Slots, nodes and plans for the judge, of machines in four zones."""

from hexcloud.domain.diff import Judgement
from hexcloud.domain.fleet import FleetState, Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import (
    Allocation,
    ExecutionPlan,
    Forecast,
    Layout,
    Placement,
    Proof,
    Role,
    RolloutColumn,
    RolloutShare,
    Slot,
    SlotName,
    TrainerColumn,
    TrainerShare,
)

ZONES = ("a", "b", "c", "d")
NOW_S = 100_000.0
RATES = {"a": 2.0, "b": 2.0, "c": 4.0, "d": 1.0}
"""Raw samples/s of one rollout machine, by zone."""
TARGET = 5.0


def rollout(number: int, zone: str) -> Slot:
    column = RolloutColumn(
        offer_id=OfferId(f"acme/us-one/{zone}/lean1/on_demand"),
        tp=1,
        replicas=1,
        batch=16,
        samples_per_s=RATES[zone],
        generation_s=60.0,
    )
    name = SlotName(f"rollout-{number}")
    return Slot(name=name, role=Role.ROLLOUT, offer_id=column.offer_id, usd_per_hour=1.0, rollout=column)


def trainer(number: int, zone: str = "a", nodes: int = 1, rank: int = 0) -> Slot:
    column = TrainerColumn(
        offer_id=OfferId(f"acme/us-one/{zone}/big8/on_demand"),
        nodes=nodes,
        layout=Layout(ranks=8 * nodes),
        samples_per_s=8.0,
        step_s=32.0,
    )
    name = SlotName(f"trainer-{number}")
    return Slot(name=name, role=Role.TRAINER, offer_id=column.offer_id, rank=rank, usd_per_hour=20.0, trainer=column)


def placement(*slots: Slot) -> Placement:
    return Placement(slots=tuple(sorted(slots, key=lambda slot: slot.name)))


def node(slot: Slot, status: NodeStatus = NodeStatus.READY, ready_at_s: float | None = 0.0) -> Node:
    return Node(
        id=node_id(RunId("main"), slot.name, 0),
        run_id=RunId("main"),
        slot=slot.name,
        attempt=0,
        role=slot.role,
        offer_id=slot.offer_id,
        status=status,
        requested_at_s=0.0,
        ready_at_s=ready_at_s,
    )


def running(*slots: Slot) -> FleetState:
    return FleetState(nodes=tuple(node(slot) for slot in slots), next_slot=50)


def running_but(slots: Placement, status: NodeStatus, *names: str) -> FleetState:
    """All nodes are ready since long ago, but for the named ones."""
    nodes = (node(slot, status, None) if slot.name in names else node(slot) for slot in slots.slots)
    return FleetState(nodes=tuple(nodes), next_slot=50)


def plan_of(slots: Placement, samples_per_s: float = TARGET) -> ExecutionPlan:
    """A plan as make_plan would give it; the judge reads its placement and forecast only."""
    gang = slots.role(Role.TRAINER)
    assert gang[0].trainer is not None
    shares = tuple(
        RolloutShare(column=slot.rollout, count=1, usd_per_hour=slot.usd_per_hour)
        for slot in slots.slots
        if slot.rollout is not None
    )
    return ExecutionPlan(
        placement=slots,
        ranks=tuple(slot.name for slot in gang),
        routes=(),
        forecast=Forecast(
            samples_per_s=samples_per_s,
            tokens_per_s=samples_per_s * 2048,
            usd_per_hour=slots.usd_per_hour,
            step_s=256 / samples_per_s,
            staleness=1.0,
            weight_sync_s=1.0,
        ),
        allocation=Allocation(
            rollout=shares,
            trainer=TrainerShare(column=gang[0].trainer, usd_per_hour=20.0),
            samples_per_s=samples_per_s,
            rent_usd_per_hour=slots.usd_per_hour,
            egress_usd_per_hour=0.0,
            proof=Proof(lower_bound_usd_per_hour=0.0, gap=0.0),
        ),
    )


def names(judgement: Judgement) -> list[str]:
    return [slot.name for slot in judgement.placement.slots]


THREE = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(3, "a"))
"""Makes 6 raw samples/s; some 5.8 after drops and pauses."""
