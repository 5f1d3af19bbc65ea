from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.domain.diff import MoveKind
from hexcloud.domain.fleet import FleetState, NodeStatus, RunId, node_id
from hexcloud.domain.formation import Formation
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import (
    Layout,
    Placement,
    Role,
    Slot,
    TrainerColumn,
)
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.resize import resize_s
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.planner.judge import Case, judge
from tests.planner.judging import (
    NOW_S,
    TARGET,
    THREE,
    ZONES,
    names,
    node,
    placement,
    plan_of,
    rollout,
    running,
    running_but,
    trainer,
)

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]
Build = Callable[..., Case]


@pytest.fixture(scope="module")
def market_at(make_market: MakeMarket, make_offer: MakeOffer) -> Callable[..., Market]:
    def market_at(egress: bool = False, **prices: float) -> Market:
        rollouts = [make_offer("lean1", prices.get(zone, 1.0), zone=zone) for zone in ZONES]
        trainers = [make_offer("big8", prices.get(f"trainer_{zone}", 20.0), zone=zone) for zone in ZONES]
        market = make_market(*rollouts, *trainers)
        network = market.network if egress else market.network.model_copy(update={"egress": ()})
        return market.model_copy(update={"network": network})

    return market_at


@pytest.fixture(scope="module")
def build(market_at: Callable[..., Market], workload: Workload) -> Build:
    """A maker of cases: what runs (all ready since long ago), what is proposed, and today's prices."""

    def build(
        current: Placement | None, proposed: Placement, fleet: FleetState | None = None, **wishes: object
    ) -> Case:
        prices = wishes.pop("prices", {})
        assert isinstance(prices, dict)
        policy = {"target_samples_per_s": TARGET, "survival_share": 0.0} | wishes
        return Case(
            plan=plan_of(proposed),
            current=current,
            fleet=fleet if fleet is not None else running(*(current.slots if current else ())),
            market=market_at(**prices),
            workload=workload,
            policy=Policy.model_validate(policy),
            now_s=NOW_S,
        )

    return build


def test_a_run_without_a_fleet_starts_the_whole_plan(build: Build) -> None:
    judgement = judge(build(None, THREE))
    (verdict,) = judgement.verdicts
    assert (verdict.kind, verdict.approved) == (MoveKind.START, True)
    assert [slot.name for slot in verdict.launches] == names(judgement) == [slot.name for slot in THREE.slots]


def test_a_fleet_that_is_what_the_plan_wants_is_left_alone(build: Build) -> None:
    judgement = judge(build(THREE, THREE))
    assert judgement.verdicts == ()
    assert names(judgement) == [slot.name for slot in THREE.slots]


def test_a_cheaper_pool_is_moved_to_when_it_pays(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    judgement = judge(build(THREE, proposed, prices={"a": 3.0, "b": 1.0}))
    (verdict,) = judgement.verdicts
    assert verdict.approved
    assert verdict.saving_usd == pytest.approx(2.0 * 6)
    assert verdict.disruption_usd == pytest.approx((1.0 * 300 + 3.0 * 60) / 3600)
    assert verdict.reason == (
        "launch rollout-50 (acme/us-one/b/lean1/on_demand), release rollout-3: "
        "saves 12.00 USD over 6 h, disruption 0.13 x 2: move"
    )
    assert "rollout-50" in names(judgement) and "rollout-3" not in names(judgement)


def test_a_pool_that_is_known_to_start_slowly_is_dearer_to_move_to(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    case = build(THREE, proposed, prices={"a": 3.0, "b": 1.0})
    offers = tuple(
        offer.model_copy(update={"startup_s": 900.0}) if offer.zone == "b" else offer for offer in case.market.offers
    )
    slow = case.model_copy(update={"market": case.market.model_copy(update={"offers": offers})})
    assert judge(slow).verdicts[0].disruption_usd == pytest.approx((1.0 * 900 + 3.0 * 60) / 3600)


def test_a_cheaper_machine_behind_dear_egress_is_not_moved_to(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    judgement = judge(build(THREE, proposed, prices={"a": 3.0, "b": 1.0, "egress": True}))
    assert judgement.verdicts[0].saving_usd < 0
    assert not judgement.verdicts[0].approved


def test_a_saving_below_k_times_the_disruption_stays(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    judgement = judge(build(THREE, proposed, prices={"a": 1.03, "b": 1.0}))
    (verdict,) = judgement.verdicts
    assert not verdict.approved
    assert verdict.reason.endswith(": stay")
    assert names(judgement) == [slot.name for slot in THREE.slots]


def test_a_node_that_has_not_dwelt_stays(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    young = [node(slot, ready_at_s=NOW_S - 600) for slot in THREE.slots]
    judgement = judge(build(THREE, proposed, FleetState(nodes=tuple(young)), prices={"a": 3.0}))
    assert not judgement.verdicts[0].approved
    assert "rollout-3 has run 10 of 30 min" in judgement.verdicts[0].reason


def test_no_more_machines_are_replaced_at_once_than_the_policy_allows(build: Build) -> None:
    proposed = placement(trainer(0), rollout(50, "b"), rollout(51, "b"), rollout(52, "b"))
    judgement = judge(build(THREE, proposed, prices={"a": 3.0}, max_moves_at_once=2))
    assert [verdict.approved for verdict in judgement.verdicts] == [True, True, False]
    assert "2 of at most 2 machines are being replaced" in judgement.verdicts[2].reason
    assert len(judgement.placement.role(Role.ROLLOUT)) == 3


def test_machines_that_start_already_count_as_being_replaced(build: Build) -> None:
    proposed = placement(trainer(0), rollout(2, "a"), rollout(3, "a"), rollout(50, "b"))
    fleet = running_but(THREE, NodeStatus.STARTING, "rollout-2", "rollout-3")
    judgement = judge(build(THREE, proposed, fleet, prices={"a": 3.0}, max_moves_at_once=2))
    assert "2 of at most 2 machines are being replaced" in judgement.verdicts[0].reason


def test_a_gang_moves_as_one_and_pays_for_the_whole_fleet_waiting(build: Build) -> None:
    current = placement(trainer(0, nodes=2), trainer(1, nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    proposed = placement(trainer(50, "b", nodes=2), trainer(51, "b", nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    judgement = judge(build(current, proposed, prices={"trainer_b": 12.0}))
    (verdict,) = judgement.verdicts
    assert verdict.approved
    assert len(verdict.launches) == len(verdict.releases) == 2
    assert verdict.disruption_usd == pytest.approx((24.0 * 300 + 43.0 * 300 + 40.0 * 32) / 3600)
    stays = judge(build(current, proposed, prices={"trainer_b": 19.5}))
    assert not stays.verdicts[0].approved
    assert names(stays) == [slot.name for slot in current.slots]


def test_a_gang_that_only_changes_its_size_waits_while_its_state_moves_where_it_can(build: Build) -> None:
    """The first of its two machines is its head; the second is one too many, and ends its step first, paid."""
    current = placement(trainer(0, nodes=2), trainer(1, nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    case = build(current, placement(trainer(0), *THREE.role(Role.ROLLOUT)))
    (whole,) = judge(case).verdicts
    (resized,) = judge(case.model_copy(update={"can_resize": True})).verdicts
    offer = next(one for one in case.market.offers if one.id == trainer(0).offer_id)
    link = forecast_gb_per_s(offer, offer, case.market.network)
    step = 20.0 * 32
    assert whole.disruption_usd == pytest.approx((43.0 * case.market.calibration.restart_s + step) / 3600)
    sizes = Formation(LayoutKind.FSDP, 2, 8), Formation(LayoutKind.FSDP, 1, 8)
    assert resized.disruption_usd == pytest.approx((43.0 * resize_s(case.workload.model, *sizes, link) + step) / 3600)
    assert resized.disruption_usd < whole.disruption_usd / 5


def test_another_head_is_a_restart_wherever_it_stands(build: Build) -> None:
    current = placement(trainer(0, nodes=2), trainer(1, nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    case = build(current, placement(trainer(1), *THREE.role(Role.ROLLOUT)))
    (verdict,) = judge(case.model_copy(update={"can_resize": True})).verdicts
    assert verdict.disruption_usd == pytest.approx((43.0 * case.market.calibration.restart_s + 20.0 * 32) / 3600)


def test_a_lost_rollout_node_is_replaced_at_once_whatever_it_costs(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    fleet = running_but(THREE, NodeStatus.LOST, "rollout-3")
    judgement = judge(build(THREE, proposed, fleet, prices={"b": 9.0}))
    verdict = judgement.verdicts[0]
    assert (verdict.kind, verdict.approved) == (MoveKind.REPAIR, True)
    assert verdict.reason.startswith("rollout-3 gone; makes 3.")
    assert "rollout-3" not in names(judgement)
    assert "rollout-50" in names(judgement)


def test_a_repair_takes_only_what_is_needed(build: Build) -> None:
    """Rollout 3 is lost; the plan would rather have two other machines, but one fast one is enough."""
    proposed = placement(trainer(0), rollout(50, "c"), rollout(51, "d"), rollout(52, "d"))
    fleet = running_but(THREE, NodeStatus.LOST, "rollout-3")
    judgement = judge(build(THREE, proposed, fleet))
    repair = judgement.verdicts[0]
    assert [slot.name for slot in repair.launches] == ["rollout-50"]
    assert repair.releases == ()


def test_a_draining_node_is_as_good_as_lost(build: Build) -> None:
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(50, "b"))
    fleet = running_but(THREE, NodeStatus.DRAINING, "rollout-3")
    judgement = judge(build(THREE, proposed, fleet))
    assert judgement.verdicts[0].kind is MoveKind.REPAIR
    assert [slot.name for slot in judgement.verdicts[0].launches] == ["rollout-50"]


def test_a_loss_that_leaves_enough_is_told_and_changes_nothing(build: Build) -> None:
    current = placement(*THREE.slots, rollout(4, "c"))
    fleet = running_but(current, NodeStatus.LOST, "rollout-3")
    proposed = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(4, "c"))
    (verdict,) = judge(build(current, proposed, fleet)).verdicts
    assert (verdict.kind, verdict.approved, verdict.launches) == (MoveKind.REPAIR, False, ())
    assert verdict.reason == "rollout-3 gone: the rest will do"


def test_a_gang_that_lost_a_node_is_made_whole_before_anything_else(build: Build) -> None:
    current = placement(trainer(0, nodes=2), trainer(1, nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    proposed = placement(trainer(0, nodes=2), trainer(50, nodes=2, rank=1), *THREE.role(Role.ROLLOUT))
    fleet = running_but(current, NodeStatus.LOST, "trainer-1")
    judgement = judge(build(current, proposed, fleet))
    (verdict,) = judgement.verdicts
    assert [slot.name for slot in verdict.launches] == ["trainer-50"]
    assert [slot.rank for slot in judgement.placement.role(Role.TRAINER)] == [0, 1]


def test_a_fleet_that_became_dearer_than_the_cap_takes_the_plan(build: Build) -> None:
    proposed = placement(trainer(0), rollout(50, "b"), rollout(51, "b"), rollout(52, "b"))
    judgement = judge(build(THREE, proposed, prices={"a": 9.0}, max_usd_per_hour=30.0))
    assert judgement.verdicts[0].kind is MoveKind.REPAIR
    assert names(judgement) == [slot.name for slot in proposed.slots]


def test_a_surplus_machine_is_released_but_never_below_the_target(build: Build) -> None:
    current = placement(*THREE.slots, rollout(4, "b"))
    judgement = judge(build(current, THREE))
    assert names(judgement) == [slot.name for slot in THREE.slots]
    too_few = placement(trainer(0), rollout(1, "a"), rollout(2, "a"))
    stays = judge(build(THREE, too_few))
    assert names(stays) == [slot.name for slot in THREE.slots]
    assert "the fleet then makes" in stays.verdicts[0].reason


def test_throughput_is_worth_its_price_when_throughput_is_the_objective(build: Build) -> None:
    wishes = {"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None}
    more = placement(*THREE.slots, rollout(50, "b"))
    judgement = judge(build(THREE, more, **wishes))
    assert judgement.verdicts[0].approved
    assert "rollout-50" in names(judgement)


def test_kept_slots_take_todays_price_as_their_new_baseline(build: Build) -> None:
    judgement = judge(build(THREE, THREE, prices={"a": 1.04}))
    assert {slot.usd_per_hour for slot in judgement.placement.role(Role.ROLLOUT)} == {1.04}


zones = st.lists(st.sampled_from(ZONES), min_size=3, max_size=6)
prices = st.dictionaries(st.sampled_from([*ZONES, "trainer_a", "trainer_b"]), st.floats(0.2, 30.0), max_size=6)


def enough(slots: Placement) -> bool:
    return sum(slot.rollout.samples_per_s for slot in slots.slots if slot.rollout) * 0.97 > TARGET


@given(
    now=zones,
    wanted=zones,
    gang=st.sampled_from("ab"),
    kept=st.integers(0, 3),
    lost=st.sets(st.integers(1, 6)),
    usd=prices,
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_judged_the_target_is_kept_and_only_what_pays_is_moved(
    build: Build,
    now: list[str],
    wanted: list[str],
    gang: str,
    kept: int,
    lost: set[int],
    usd: dict[str, float],
) -> None:
    current = placement(trainer(0), *(rollout(index + 1, zone) for index, zone in enumerate(now)))
    rest = current.role(Role.ROLLOUT)[: min(kept, len(now))]
    new = [rollout(index + 50, zone) for index, zone in enumerate([*wanted, "c"])]
    proposed = placement(trainer(0) if gang == "a" else trainer(40, "b"), *rest, *new)
    alive = [slot for slot in current.slots if slot.name not in {f"rollout-{number}" for number in lost}]
    proposed = placement(*(slot for slot in proposed.slots if slot in alive or slot not in current.slots))
    if not enough(proposed):
        return
    case = build(current, proposed, running(*alive), prices=usd)
    judgement = judge(case)
    assert judgement == judge(case)
    assert enough(judgement.placement)
    assert len({slot.offer_id for slot in judgement.placement.role(Role.TRAINER)}) == 1
    for verdict in judgement.verdicts:
        if verdict.kind is MoveKind.SAVING and verdict.approved:
            assert verdict.saving_usd > case.policy.switch_factor * verdict.disruption_usd
    released = {name for verdict in judgement.verdicts if verdict.approved for name in verdict.releases}
    assert not released & {node_id(RunId("main"), slot.name, 0) for slot in judgement.placement.slots}
    launched = {slot.name for verdict in judgement.verdicts if verdict.approved for slot in verdict.launches}
    assert {slot.name for slot in judgement.placement.slots} <= launched | {slot.name for slot in alive}


def test_a_machine_may_leave_on_the_surplus_that_another_move_makes(build: Build) -> None:
    """Zone c makes twice as much: one machine there stands for two, and then a third may go."""
    current = placement(trainer(0), rollout(1, "a"), rollout(2, "a"), rollout(3, "d"), rollout(4, "d"))
    proposed = placement(trainer(0), rollout(1, "a"), rollout(50, "c"))
    judgement = judge(build(current, proposed, prices={"d": 4.0}, max_moves_at_once=4))
    assert names(judgement) == ["rollout-1", "rollout-50", "trainer-0"]


def test_a_lost_gang_that_returns_in_another_region_takes_the_whole_plan_along(
    build: Build, make_market: MakeMarket, make_offer: MakeOffer
) -> None:
    far = TrainerColumn(
        offer_id=OfferId("acme/us-two/a/big8/on_demand"),
        nodes=1,
        layout=Layout(ranks=8),
        samples_per_s=8.0,
        step_s=32.0,
    )
    head = trainer(50).model_copy(update={"offer_id": far.offer_id, "trainer": far})
    proposed = placement(head, rollout(51, "a"), rollout(52, "b"), rollout(53, "b"))
    fleet = running(*THREE.role(Role.ROLLOUT))
    case = build(THREE, proposed, fleet)
    offers = (*case.market.offers, make_offer("big8", 20.0, region="us-two"))
    judgement = judge(case.model_copy(update={"market": make_market(*offers)}))
    assert names(judgement) == [slot.name for slot in proposed.slots]


def test_a_replica_that_lacks_a_machine_is_lost_as_a_whole(build: Build) -> None:
    """Its other machine is still there, and of no use: both slots leave the placement, and the plan's replica comes."""
    gang, old, new = trainer(0), replica(1, "c"), replica(5, "c")
    single = rollout(3, "a")
    now = placement(gang, *old, single)
    fleet = FleetState(nodes=tuple(node(slot) for slot in (gang, old[0], single)), next_slot=50)
    judgement = judge(build(now, placement(gang, *new, single), fleet=fleet))
    (verdict,) = judgement.verdicts
    assert verdict.kind is MoveKind.REPAIR and verdict.approved
    assert "rollout-1, rollout-2 gone" in verdict.reason
    assert [slot.name for slot in verdict.launches] == ["rollout-5", "rollout-6"]
    assert judgement.placement == placement(gang, *new, single)


def replica(head: int, zone: str) -> tuple[Slot, Slot]:
    slots = (rollout(head, zone), rollout(head + 1, zone))
    first, second = (slot.model_copy(update={"head": slots[0].name, "rank": rank}) for rank, slot in enumerate(slots))
    return first, second
