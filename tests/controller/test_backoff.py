from hypothesis import given
from hypothesis import strategies as st

from hexcloud.controller.backoff import BackOff


def back_off() -> BackOff:
    return BackOff(first_s=180.0, most_s=3600.0, forget_s=3600.0)


def test_each_refusal_doubles_the_wait_up_to_the_longest() -> None:
    pools = back_off()
    assert [pools.refuse("a", 0.0) for _ in range(7)] == [180.0, 360.0, 720.0, 1440.0, 2880.0, 3600.0, 3600.0]


def test_a_scope_waits_only_for_itself() -> None:
    pools = back_off()
    pools.refuse("a", 100.0)
    assert pools.is_waiting("a", 279.0)
    assert not pools.is_waiting("a", 280.0)
    assert not pools.is_waiting("b", 100.0)


def test_peace_takes_refusals_back_one_by_one() -> None:
    pools = back_off()
    for _ in range(3):
        pools.refuse("a", 0.0)
    assert pools.level("a", 3600.0) == 2.0
    assert pools.refuse("a", 7200.0) == 360.0  # of three refusals one was left
    assert pools.refuse("a", 1e6) == 180.0


def test_a_success_takes_all_of_them_back() -> None:
    pools = back_off()
    pools.refuse("a", 0.0)
    pools.refuse("a", 0.0)
    pools.forgive("a")
    assert not pools.is_waiting("a", 0.0)
    assert pools.refuse("a", 0.0) == 180.0


@given(st.lists(st.floats(-1e9, 1e9), max_size=2000))
def test_no_history_makes_a_wait_shorter_than_the_first_or_longer_than_the_longest(moments: list[float]) -> None:
    pools = back_off()
    waits = [pools.refuse("a", at_s) for at_s in moments]
    assert all(180.0 <= wait <= 3600.0 for wait in waits)
