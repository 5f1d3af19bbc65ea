from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.engines.embedded_pace import BURST_S, Pace


@given(
    rate=st.floats(1, 1e4),
    steps=st.lists(st.tuples(st.integers(1, 128), st.floats(0, 0.5)), min_size=1, max_size=60),
)
def test_no_span_of_time_gets_more_than_the_rate_and_one_burst(rate: float, steps: list[tuple[int, float]]) -> None:
    pace, now, made = Pace(rate), 0.0, 0
    for tokens, late_s in steps:
        wait_s = pace.charge(tokens, now)
        made += tokens
        assert made <= (now + wait_s + BURST_S) * rate * (1 + 1e-6)
        now += wait_s + late_s


def test_a_full_batch_takes_its_size_over_the_rate() -> None:
    batch, length, samples_per_s = 32, 8, 16.0
    pace, now = Pace(samples_per_s * length), 0.0
    for _ in range(length):
        now += pace.charge(batch, now)
    assert now == batch / samples_per_s


def test_short_delays_are_caught_up() -> None:
    pace, now = Pace(100.0), 0.0
    for _ in range(50):
        now += pace.charge(10, now) + 0.03
    assert now <= 50 * 10 / 100.0 + 0.03


def test_without_a_rate_nothing_waits() -> None:
    assert Pace(None).charge(10**9, 0.0) == 0.0
