import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.clock import RunClock


def test_kappa_run_seconds_pass_per_wall_second() -> None:
    clock = RunClock(origin_run_s=1000.0, origin_wall_s=50.0, scale=60.0)
    assert clock.run_at(50.0) == 1000.0
    assert clock.run_at(52.0) == 1120.0


def test_now_follows_the_wall_clock() -> None:
    clock = RunClock(origin_run_s=0.0, origin_wall_s=time.time(), scale=1000.0)
    clock.sleep(0.02)
    assert clock.now_s() >= 20.0
    assert clock.wall_s() == pytest.approx(time.time(), abs=1.0)


def test_a_negative_sleep_returns_at_once() -> None:
    RunClock(0.0, 0.0).sleep(-5.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_clock_that_does_not_go_forward_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="not positive"):
        RunClock(0.0, 0.0, scale)


@given(
    st.floats(min_value=0, max_value=2e9),
    st.floats(min_value=0, max_value=2e9),
    st.floats(min_value=0.1, max_value=5000),
    st.floats(min_value=0, max_value=1e7),
)
def test_wall_and_run_moments_are_inverse(run_s: float, wall_s: float, scale: float, after_s: float) -> None:
    clock = RunClock(run_s, wall_s, scale)
    moment = wall_s + after_s
    assert clock.wall_at(clock.run_at(moment)) == pytest.approx(moment, abs=1e-2)
