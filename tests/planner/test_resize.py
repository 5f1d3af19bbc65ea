import pytest

from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, Slot, SlotName
from hexcloud.planner.resize import is_resize


def slot(number: int, rank: int = 0, zone: str = "a", role: Role = Role.TRAINER) -> Slot:
    offer_id = OfferId(f"acme/us-one/{zone}/big8/on_demand")
    return Slot(name=SlotName(f"{role.value}-{number}"), role=role, offer_id=offer_id, rank=rank, usd_per_hour=1.0)


TWO = (slot(0), slot(1, rank=1), slot(2, role=Role.ROLLOUT, zone="b"))


@pytest.mark.parametrize(
    "after",
    [(slot(0),), (slot(0), slot(1, rank=1), slot(5, rank=2)), (slot(7, rank=1), slot(0))],
    ids=["smaller", "larger", "another member"],
)
def test_the_same_machines_under_the_same_head_are_a_resize(after: tuple[Slot, ...]) -> None:
    assert is_resize(TWO, after)


@pytest.mark.parametrize(
    "after",
    [(), (slot(1),), (slot(0, zone="b"),), (slot(0), slot(5, rank=1, zone="b")), (slot(0, rank=1), slot(1))],
    ids=["no gang", "a member alone", "another offer", "two offers", "another head"],
)
def test_anything_else_is_not(after: tuple[Slot, ...]) -> None:
    assert not is_resize(TWO, after)
    assert not is_resize(after, TWO)
