from hexcloud.simulator.capacity import UNLIMITED, Capacity, CapacityStep
from hexcloud.simulator.world import small_market

OFFER = small_market().offers[0].id


def test_capacity_is_unlimited_until_its_first_step() -> None:
    capacity = Capacity((CapacityStep(OFFER, 100.0, 2), CapacityStep(OFFER, 200.0, 0)))
    assert [capacity.limit(OFFER, at_s) for at_s in (99.0, 100.0, 250.0)] == [UNLIMITED, 2, 0]
    assert capacity.limit(small_market().offers[1].id, 250.0) == UNLIMITED
