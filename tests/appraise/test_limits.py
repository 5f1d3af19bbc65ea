import pytest

from hexcloud.appraise.limits import CHEAP_SHARE, CHEAP_SPOT_SHARE, cheap_share


@pytest.mark.parametrize(("count", "share"), [(1, 0.1), (4, 0.1), (8, 0.1625), (16, 0.1)])
def test_a_large_machine_for_the_price_of_one_gpu_is_too_cheap(count: int, share: float) -> None:
    assert cheap_share(False, count) == pytest.approx(share)
    assert cheap_share(False, count) >= CHEAP_SHARE


def test_spot_has_a_share_of_its_own_whatever_the_size() -> None:
    assert cheap_share(True, 1) == cheap_share(True, 8) == CHEAP_SPOT_SHARE
