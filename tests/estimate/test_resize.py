import pytest

from hexcloud.domain.model import ModelSpec
from hexcloud.estimate.resize import MEETING_S, resize_s
from hexcloud.simulator.world import small_workload

MODEL: ModelSpec = small_workload().model


def test_a_resize_takes_as_long_as_the_whole_state_over_one_link() -> None:
    slow, fast = resize_s(MODEL, gb_per_s=1.25), resize_s(MODEL, gb_per_s=12.5)
    assert fast - MEETING_S == pytest.approx(18 * 1.543714304 / 12.5)
    assert slow - MEETING_S == pytest.approx(10 * (fast - MEETING_S))


def test_a_resize_is_a_small_part_of_a_restart() -> None:
    assert resize_s(MODEL, gb_per_s=12.5) < 10.0
