import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.runtime.token_bucket import TokenBucket


@given(rate=st.floats(1, 1e9), sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_all_bytes_booked_at_once_take_their_sum_over_the_rate(rate: float, sizes: list[int]) -> None:
    bucket = TokenBucket(rate)
    waits = [bucket.wait_s(size, now=100.0) for size in sizes]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(sum(sizes) / rate, rel=1e-3)


def test_idle_time_earns_no_burst() -> None:
    bucket = TokenBucket(100.0)
    bucket.wait_s(100, now=0.0)
    assert bucket.wait_s(100, now=1000.0) == pytest.approx(1.0)


def test_a_caller_that_was_held_up_catches_up() -> None:
    bucket = TokenBucket(100.0)
    assert bucket.wait_s(100, now=0.0) == pytest.approx(1.0)
    assert bucket.wait_s(100, now=1.03) == pytest.approx(0.97)


def test_no_rate_never_waits() -> None:
    assert TokenBucket(None).wait_s(10**12, now=0.0) == 0.0


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        TokenBucket(0.0)


def test_take_really_waits() -> None:
    started = time.monotonic()
    asyncio.run(TokenBucket(1000.0).take(50))
    assert time.monotonic() - started >= 0.045
