"""Placements and allocations add up."""

from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import (
    Allocation,
    Layout,
    Placement,
    Proof,
    Role,
    RolloutColumn,
    Slot,
    SlotName,
    TrainerColumn,
    TrainerShare,
)

OFFER = OfferId("a/b/c/d/spot")


def test_slots_of_a_column_are_samples_over_all_replicas() -> None:
    column = RolloutColumn(offer_id=OFFER, tp=2, replicas=4, batch=32, samples_per_s=1.0, generation_s=10.0)
    assert column.slots == 128


def test_placement_sums_its_rent_and_splits_by_role() -> None:
    slots = (
        Slot(name=SlotName("rollout-0"), role=Role.ROLLOUT, offer_id=OFFER, usd_per_hour=1.5),
        Slot(name=SlotName("trainer-1"), role=Role.TRAINER, offer_id=OFFER, usd_per_hour=2.0),
    )
    placement = Placement(slots=slots)
    assert placement.usd_per_hour == 3.5
    assert placement.role(Role.TRAINER) == (slots[1],)


def test_objective_is_rent_egress_and_one_off() -> None:
    gang = TrainerColumn(offer_id=OFFER, nodes=1, layout=Layout(ranks=8), samples_per_s=1.0, step_s=256.0)
    allocation = Allocation(
        rollout=(),
        trainer=TrainerShare(column=gang, usd_per_hour=2.0),
        samples_per_s=1.0,
        rent_usd_per_hour=2.0,
        egress_usd_per_hour=0.5,
        one_off_usd_per_hour=0.25,
        proof=Proof(lower_bound_usd_per_hour=2.75, gap=0.0),
    )
    assert allocation.usd_per_hour == 2.75


def test_the_layout_of_a_plan_that_an_older_version_stored_is_read() -> None:
    stored = {"kind": "hsdp", "ranks": 16, "micro_batch": 8}
    assert Layout.model_validate(stored) == Layout(kind="hsdp", ranks=16)
