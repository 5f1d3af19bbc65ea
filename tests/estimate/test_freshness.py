import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.workload import Workload
from hexcloud.estimate.freshness import farthest_s, sync_s, versions_allowed, versions_old
from hexcloud.estimate.rollout import reload_s


def test_generation_travel_and_reload_make_the_age(workload: Workload) -> None:
    assert versions_old(workload, 1, 30.0, 2.0, 20.0) == pytest.approx((30.0 + 2.0 + reload_s(workload, 1)) / 20.0)


def test_a_way_longer_than_a_step_carries_every_other_version_only(workload: Workload) -> None:
    assert sync_s(workload, 1, 25.0, 20.0) - sync_s(workload, 1, 20.0, 20.0) == pytest.approx(10.0)


def test_at_eta_0_the_pools_share_a_step(workload: Workload) -> None:
    assert versions_allowed(workload) == workload.eta
    assert 0 < versions_allowed(workload.model_copy(update={"eta": 0})) < 1


@given(st.floats(0.1, 500), st.floats(1, 200), st.sampled_from([0, 1, 4]), st.sampled_from([1, 4]))
def test_the_farthest_way_is_just_allowed(
    workload: Workload, generation_s: float, step_s: float, eta: int, tp: int
) -> None:
    workload = workload.model_copy(update={"eta": eta})
    way_s = farthest_s(workload, tp, generation_s, step_s)
    allowed = versions_allowed(workload)
    if way_s < 0:
        assert versions_old(workload, tp, generation_s, 0.0, step_s) > allowed
    else:
        assert versions_old(workload, tp, generation_s, way_s, step_s) == pytest.approx(allowed)
        assert versions_old(workload, tp, generation_s, way_s * 1.01 + 0.01, step_s) > allowed
