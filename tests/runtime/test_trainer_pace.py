from hypothesis import given
from hypothesis import strategies as st

from hexcloud.runtime.trainer_pace import GangPace


@given(
    rate=st.floats(1, 1e4),
    steps=st.lists(st.tuples(st.integers(1, 512), st.floats(0, 5)), min_size=2, max_size=40),
)
def test_no_two_steps_end_closer_than_the_rate_allows(rate: float, steps: list[tuple[int, float]]) -> None:
    pace, now, end = GangPace(rate), 0.0, float("-inf")
    for samples, late_s in steps:
        now += late_s
        wanted = pace.end_s(now, samples)
        assert wanted - end >= samples / rate * (1 - 1e-9)
        end, now = wanted, max(now, wanted)


def test_handing_over_between_steps_costs_the_gang_nothing() -> None:
    pace, now = GangPace(256.0), 0.0
    first = pace.end_s(now, 256)
    second = pace.end_s(first + 0.05, 256)
    assert (first, second) == (1.0, 2.0)


def test_waiting_for_data_is_not_made_up_for() -> None:
    pace = GangPace(256.0)
    assert pace.end_s(pace.end_s(0.0, 256) + 0.5, 256) == 2.5


def test_without_emulation_nothing_is_waited_for() -> None:
    assert GangPace(None).end_s(3.0, 10**6) == 3.0


def test_a_gang_of_half_the_machines_is_half_as_fast() -> None:
    assert GangPace(256.0).end_s(0.0, 256, share=0.5) == 2.0
