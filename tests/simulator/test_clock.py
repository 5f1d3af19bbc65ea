import pytest

from hexcloud.simulator.clock import VirtualClock


def test_run_time_passes_at_the_scale_and_only_in_sleep() -> None:
    clock = VirtualClock(run_s=1000.0, wall_s=50.0, scale=25.0)
    assert (clock.now_s(), clock.wall_s()) == (1000.0, 50.0)
    clock.sleep(2.0)
    assert (clock.now_s(), clock.wall_s()) == (1050.0, 52.0)
    assert clock.to_wall(clock.to_run(77.0)) == pytest.approx(77.0)
