import pytest

from hexcloud.appraise.limits import CHEAP_SHARE, CHEAP_SPOT_SHARE, cheap_share, looks_like_one_gpus


@pytest.mark.parametrize(("count", "share"), [(1, 0.1), (4, 0.1), (8, 0.1625), (16, 0.1)])
def test_a_large_machine_for_the_price_of_one_gpu_is_too_cheap(count: int, share: float) -> None:
    assert cheap_share(False, count) == pytest.approx(share)
    assert cheap_share(False, count) >= CHEAP_SHARE


def test_spot_has_a_share_of_its_own_whatever_the_size() -> None:
    assert cheap_share(True, 1) == cheap_share(True, 8) == CHEAP_SPOT_SHARE


@pytest.mark.parametrize(
    ("spot", "count", "looks"), [(6.88, 8, True), (6.7, 8, False), (13.76, 4, True), (27.52, 2, False)]
)
def test_spot_that_is_one_gpus_on_demand_price_to_the_cent_is_seen(spot: float, count: int, looks: bool) -> None:
    assert looks_like_one_gpus(spot, 55.04, count) is looks
