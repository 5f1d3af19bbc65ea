from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Columns, Layout, Placement, Role, RolloutColumn, Slot, SlotName, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.moves import Move, independent_moves, units, whole_move
from hexcloud.planner.problem import Problem
from hexcloud.planner.worth import Worth

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]
ZONES = "abc"


def rollout(number: int, zone: str, rate: float = 2.0) -> Slot:
    column = RolloutColumn(
        offer_id=OfferId(f"acme/us-one/{zone}/lean1/on_demand"),
        tp=1,
        replicas=1,
        batch=16,
        samples_per_s=rate,
        generation_s=60.0,
    )
    name = SlotName(f"rollout-{number}")
    return Slot(name=name, role=Role.ROLLOUT, offer_id=column.offer_id, usd_per_hour=1.0, rollout=column)


def trainer(number: int, region: str = "us-one") -> Slot:
    column = TrainerColumn(
        offer_id=OfferId(f"acme/{region}/a/big8/on_demand"),
        nodes=1,
        layout=Layout(ranks=8),
        samples_per_s=8.0,
        step_s=32.0,
    )
    name = SlotName(f"trainer-{number}")
    return Slot(name=name, role=Role.TRAINER, offer_id=column.offer_id, usd_per_hour=20.0, trainer=column)


@pytest.fixture
def worth(make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy) -> Worth:
    """Zone a costs 3 USD/h, b 2, c 1."""
    offers = [make_offer("lean1", price, zone=zone) for zone, price in zip(ZONES, (3.0, 2.0, 1.0), strict=True)]
    slots = [rollout(index, zone) for index, zone in enumerate(ZONES)]
    columns = Columns(rollout=tuple(slot.rollout for slot in slots if slot.rollout), trainer=())
    return Worth(Problem(columns, make_market(*offers), workload, policy, FleetState()), 5.0)


def names(slots: tuple[Slot, ...]) -> list[str]:
    return [slot.name for slot in slots]


def pairs(moves: list[Move]) -> list[tuple[list[str], list[str]]]:
    return [(names(move.joins), names(move.leaves)) for move in moves]


def test_the_whole_move_ends_in_the_plan() -> None:
    now = (trainer(0), rollout(1, "a"), rollout(2, "b"))
    plan = Placement(slots=(rollout(2, "b"), rollout(7, "c"), trainer(9)))
    move = whole_move(now, plan)
    assert (names(move.joins), names(move.leaves)) == (["rollout-7", "trainer-9"], ["trainer-0", "rollout-1"])
    assert names(move.apply(now)) == names(plan.slots)


def test_the_dearest_machine_leaves_for_the_cheapest(worth: Worth) -> None:
    now = (trainer(0), rollout(1, "b"), rollout(2, "a"))
    plan = Placement(slots=(trainer(0), rollout(7, "c")))
    moves = independent_moves(whole_move(now, plan), now, worth)
    assert pairs(moves) == [(["rollout-7"], ["rollout-2"]), ([], ["rollout-1"])]


def test_a_pair_is_as_large_as_it_must_be_to_lose_no_throughput(worth: Worth) -> None:
    now = (trainer(0), rollout(1, "a", rate=4.0), rollout(2, "b", rate=1.0), rollout(3, "b", rate=1.0))
    plan = Placement(slots=(trainer(0), *(rollout(number, "c") for number in (5, 6, 7))))
    moves = independent_moves(whole_move(now, plan), now, worth)
    assert pairs(moves) == [
        (["rollout-5"], ["rollout-2", "rollout-3"]),
        (["rollout-6", "rollout-7"], ["rollout-1"]),
    ]


def test_a_gang_in_its_region_moves_apart_from_rollout(worth: Worth) -> None:
    now = (trainer(0), rollout(1, "a"))
    plan = Placement(slots=(trainer(9), rollout(7, "c")))
    moves = independent_moves(whole_move(now, plan), now, worth)
    assert pairs(moves) == [(["rollout-7"], ["rollout-1"]), (["trainer-9"], ["trainer-0"])]
    assert names(moves[1].gang) == ["trainer-9"]


def test_a_gang_that_changes_its_region_takes_everything_along(worth: Worth) -> None:
    now = (trainer(0), rollout(1, "a"))
    plan = Placement(slots=(trainer(9, "us-two"), rollout(7, "c")))
    whole = whole_move(now, plan)
    assert independent_moves(whole, now, worth) == [whole]


def test_a_plan_that_is_what_runs_is_no_move(worth: Worth) -> None:
    now = (trainer(0), rollout(1, "a"))
    whole = whole_move(now, Placement(slots=now))
    assert whole.is_empty
    assert independent_moves(whole, now, worth) == []


def replica(head: int, zone: str, rate: float) -> tuple[Slot, Slot]:
    """Two machines that make a rate together."""
    slots = (rollout(head, zone, rate), rollout(head + 1, zone, rate))
    name = slots[0].name
    first, second = (slot.model_copy(update={"head": name, "rank": rank}) for rank, slot in enumerate(slots))
    return first, second


def test_a_replica_of_two_machines_comes_and_goes_as_one(worth: Worth) -> None:
    """It makes 4 in zone a for 6 USD/h; two machines of zone c make as much for 2."""
    old = replica(1, "a", 4.0)
    now = (trainer(0), *old, rollout(5, "b"))
    plan = Placement(slots=(trainer(0), rollout(5, "b"), rollout(7, "c"), rollout(8, "c")))
    moves = independent_moves(whole_move(now, plan), now, worth)
    assert pairs(moves) == [(["rollout-7", "rollout-8"], ["rollout-1", "rollout-2"])]
    assert worth.rollout_rate(old) == pytest.approx(worth.rate(old[0])) and worth.rate(old[1]) == 0.0
    assert worth.usd_per_sample(old) == pytest.approx(6.0 / worth.rate(old[0]))
    assert units((old[1], rollout(5, "b"), old[0])) == [(rollout(5, "b"),), old]
