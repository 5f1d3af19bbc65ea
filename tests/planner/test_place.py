from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.errors import PlanError
from hexcloud.domain.fleet import LIVE, FleetState, Node, NodeStatus, RunId, node_id
from hexcloud.domain.market import Market, Network
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import (
    Allocation,
    Layout,
    Placement,
    Proof,
    Role,
    RolloutColumn,
    RolloutShare,
    SlotName,
    TrainerColumn,
    TrainerShare,
)
from hexcloud.planner.diff import diff
from hexcloud.planner.place import place

AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
BIG, SMALL = OfferId("acme/r/a/big/on_demand"), OfferId("acme/r/a/small/on_demand")
PRICES = {BIG: 20.0, SMALL: 3.0}


def market() -> Market:
    offers = tuple(
        Offer(
            id=name,
            cloud="acme",
            region="r",
            zone="a",
            instance_type=name.split("/")[3],
            tenure=Tenure.ON_DEMAND,
            gpu="H100",
            gpu_count=8,
            vcpus=96,
            memory_gib=512,
            network_gb_per_s=10,
            usd_per_hour=price,
            as_of=AS_OF,
            source="test",
        )
        for name, price in PRICES.items()
    )
    row = Efficiency(gpu="*", bandwidth=0.6, compute=0.5, mfu=0.4, source="test")
    return Market(
        as_of=AS_OF,
        offers=offers,
        gpus={},
        network=Network(links=(), egress=()),
        calibration=Calibration(efficiencies=(row,), source="test"),
    )


def allocation(rollouts: int, gang: int = 1) -> Allocation:
    column = RolloutColumn(offer_id=SMALL, tp=1, replicas=8, batch=64, samples_per_s=2.0, generation_s=60.0)
    trainer = TrainerColumn(offer_id=BIG, nodes=gang, layout=Layout(ranks=8 * gang), samples_per_s=5.0, step_s=50.0)
    return Allocation(
        rollout=(RolloutShare(column=column, count=rollouts, usd_per_hour=rollouts * PRICES[SMALL]),),
        trainer=TrainerShare(column=trainer, usd_per_hour=gang * PRICES[BIG]),
        samples_per_s=2.0,
        rent_usd_per_hour=rollouts * PRICES[SMALL] + gang * PRICES[BIG],
        egress_usd_per_hour=0.0,
        proof=Proof(lower_bound_usd_per_hour=1.0, gap=0.0),
    )


def node(role: Role, number: int, ready_at_s: float | None = 0.0, status: NodeStatus = NodeStatus.READY) -> Node:
    name = SlotName(f"{role.value}-{number}")
    return Node(
        id=node_id(RunId("main"), name, 0),
        run_id=RunId("main"),
        slot=name,
        attempt=0,
        role=role,
        offer_id=BIG if role is Role.TRAINER else SMALL,
        status=status,
        requested_at_s=0.0,
        ready_at_s=ready_at_s,
    )


def names(placement: Placement, role: Role) -> list[str]:
    return [slot.name for slot in placement.role(role)]


def test_a_new_fleet_is_numbered_from_zero_with_the_trainer_first() -> None:
    placed = place(allocation(rollouts=2, gang=2), FleetState(), market())
    assert names(placed, Role.TRAINER) == ["trainer-0", "trainer-1"]
    assert names(placed, Role.ROLLOUT) == ["rollout-2", "rollout-3"]
    assert [slot.rank for slot in placed.role(Role.TRAINER)] == [0, 1]
    assert placed.usd_per_hour == pytest.approx(2 * 20 + 2 * 3)


def test_slots_carry_the_column_they_run() -> None:
    placed = place(allocation(rollouts=1), FleetState(), market())
    assert placed.role(Role.ROLLOUT)[0].rollout is not None
    assert placed.role(Role.TRAINER)[0].trainer is not None


def test_what_runs_keeps_its_slot_and_new_slots_get_numbers_never_used() -> None:
    fleet = FleetState(nodes=(node(Role.TRAINER, 0), node(Role.ROLLOUT, 4)), next_slot=9)
    placed = place(allocation(rollouts=2), fleet, market())
    assert names(placed, Role.TRAINER) == ["trainer-0"]
    assert names(placed, Role.ROLLOUT) == ["rollout-4", "rollout-9"]


def test_a_lost_or_draining_node_keeps_nothing_but_its_number_is_not_given_again() -> None:
    fleet = FleetState(
        nodes=(node(Role.ROLLOUT, 5, status=NodeStatus.LOST), node(Role.ROLLOUT, 6, status=NodeStatus.DRAINING))
    )
    placed = place(allocation(rollouts=1), fleet, market())
    assert names(placed, Role.ROLLOUT) == ["rollout-8"]


def test_when_fewer_are_wanted_the_longest_ready_stay() -> None:
    fleet = FleetState(
        nodes=(node(Role.ROLLOUT, 1, 300.0), node(Role.ROLLOUT, 2, None), node(Role.ROLLOUT, 3, 100.0)), next_slot=4
    )
    placed = place(allocation(rollouts=2), fleet, market())
    assert names(placed, Role.ROLLOUT) == ["rollout-1", "rollout-3"]


def test_the_running_trainer_stays_the_head_when_the_gang_grows() -> None:
    placed = place(allocation(rollouts=1, gang=2), FleetState(nodes=(node(Role.TRAINER, 7),), next_slot=8), market())
    ranks = {slot.name: slot.rank for slot in placed.role(Role.TRAINER)}
    assert ranks == {"trainer-7": 0, "trainer-8": 1}


@pytest.mark.parametrize("gang", [1, 2, 3])
def test_a_running_gang_keeps_its_head_whichever_machine_was_ready_first(gang: int) -> None:
    members = [node(Role.TRAINER, number, ready_at_s=5.0).model_copy(update={"rank": 1}) for number in (10, 11)]
    fleet = FleetState(nodes=(*members, node(Role.TRAINER, 9, ready_at_s=6.0)), next_slot=20)
    placed = place(allocation(rollouts=1, gang=gang), fleet, market())
    assert next(slot.name for slot in placed.role(Role.TRAINER) if slot.rank == 0) == "trainer-9"


def test_an_offer_that_the_market_does_not_list_is_refused() -> None:
    empty = market().model_copy(update={"offers": ()})
    with pytest.raises(PlanError, match="does not list"):
        place(allocation(rollouts=1), FleetState(), empty)


nodes = st.lists(
    st.builds(
        node,
        st.sampled_from(Role),
        st.integers(0, 20),
        st.one_of(st.none(), st.floats(0, 1e6)),
        st.sampled_from(NodeStatus),
    ),
    max_size=10,
    unique_by=lambda one: one.slot,
)


@given(nodes=nodes, rollouts=st.integers(1, 6), gang=st.integers(1, 3), next_slot=st.integers(0, 30))
def test_placing_is_deterministic_complete_and_keeps_all_it_can(
    nodes: list[Node], rollouts: int, gang: int, next_slot: int
) -> None:
    fleet = FleetState(nodes=tuple(nodes), next_slot=next_slot)
    placed = place(allocation(rollouts, gang), fleet, market())
    assert placed == place(allocation(rollouts, gang), fleet, market())
    assert len(placed.role(Role.ROLLOUT)) == rollouts
    assert len(placed.role(Role.TRAINER)) == gang
    assert len({slot.name for slot in placed.slots}) == rollouts + gang
    staying = [one for one in nodes if one.status in LIVE and one.status is not NodeStatus.DRAINING]
    kept = {slot.name for slot in placed.slots} & {one.slot for one in staying}
    for role, wanted in ((Role.ROLLOUT, rollouts), (Role.TRAINER, gang)):
        here = {one.slot for one in staying if one.role is role}
        assert len(kept & here) == min(wanted, len(here))
    fresh = {slot.name for slot in placed.slots} - kept
    assert not fresh & {one.slot for one in nodes}


@given(nodes=nodes, rollouts=st.integers(1, 6))
def test_a_placement_of_a_fleet_that_fits_changes_nothing(nodes: list[Node], rollouts: int) -> None:
    fleet = FleetState(nodes=tuple(nodes), next_slot=30)
    placed = place(allocation(rollouts), fleet, market())
    wanted = {slot.name for slot in placed.slots}
    assert {slot.name for slot in diff(placed, fleet).launches} == wanted - {
        one.slot for one in nodes if one.status in LIVE
    }


def replica(head: int, *members: int, since_s: float = 0.0) -> tuple[Node, ...]:
    """The machines of one replica that still run, by their ranks' numbers; two were asked for."""
    numbers = (head, *members)
    facts = {"gang": 2, "head": SlotName(f"rollout-{head}")}
    ranked = ((rank, node(Role.ROLLOUT, number, since_s)) for rank, number in enumerate(numbers))
    return tuple(one.model_copy(update={**facts, "rank": rank}) for rank, one in ranked)


def wide(replicas: int) -> Allocation:
    plain = allocation(rollouts=replicas)
    (share,) = plain.rollout
    column = share.column.model_copy(update={"nodes": 2, "tp": 2})
    return plain.model_copy(update={"rollout": (share.model_copy(update={"column": column}),)})


def units(placed: Placement) -> list[tuple[str, str | None, int]]:
    return [(slot.name, slot.head, slot.rank) for slot in placed.role(Role.ROLLOUT)]


def test_a_replica_of_two_machines_has_two_slots_under_its_head() -> None:
    placed = place(wide(1), FleetState(), market())
    assert units(placed) == [("rollout-1", "rollout-1", 0), ("rollout-2", "rollout-1", 1)]


def test_a_replica_that_runs_keeps_its_slots_and_one_that_lacks_a_machine_keeps_none() -> None:
    whole, broken = replica(3, 4), replica(5)
    placed = place(wide(2), FleetState(nodes=(*whole, *broken), next_slot=9), market())
    assert units(placed)[2:] == [("rollout-3", "rollout-3", 0), ("rollout-4", "rollout-3", 1)]
    assert {name for name, *_ in units(placed)[:2]} == {"rollout-10", "rollout-11"}, "the trainer has the number before"


def test_machines_of_replicas_and_single_ones_are_not_exchanged() -> None:
    single = node(Role.ROLLOUT, 7)
    fleet = FleetState(nodes=(*replica(3, 4), single), next_slot=9)
    singles = names(place(allocation(rollouts=2), fleet, market()), Role.ROLLOUT)
    assert "rollout-7" in singles and {"rollout-3", "rollout-4"}.isdisjoint(singles)
    assert "rollout-7" not in names(place(wide(2), fleet, market()), Role.ROLLOUT)
