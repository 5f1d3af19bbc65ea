import numpy as np
import pytest

from hexcloud.appraise.history import Events, History, history_of
from hexcloud.appraise.steps import NO_PRICE, settle
from hexcloud.domain.offer import OfferId

A, B = OfferId("aws/r/-/a/spot"), OfferId("aws/r/-/b/spot")


def history(a: list[float], b: list[float], is_snapshots: bool) -> History:
    """Give both offers an event a second, A on even and B on odd ones."""
    series = np.array([0] * len(a) + [1] * len(b), dtype=np.int64)
    at_s = np.array([*range(0, 2 * len(a), 2), *range(1, 2 * len(b), 2)], dtype=float)
    price = np.array([*a, *b])
    return history_of((Events((A, B), series, at_s, price, np.zeros(price.shape, np.int8)),), is_snapshots)


@pytest.mark.parametrize(("is_snapshots", "freed"), [(True, [True, False]), (False, [False, False])])
def test_a_moment_of_another_series_confirms_only_where_the_file_shows_everything(
    is_snapshots: bool, freed: list[bool]
) -> None:
    told = history([10.0, 20.0], [5.0, 5.0, 9.0, 9.1], is_snapshots)
    settled = settle(told, np.zeros(6, np.int8), np.ones(6, bool))
    assert np.flatnonzero(settled.is_step).tolist() == [1, 4]
    assert np.isfinite(settled.freed_s[[1, 4]]).tolist() == freed


def test_a_step_may_be_exactly_as_large_as_the_limit() -> None:
    told = history([10.0, 13.0, 13.0 * 1.31], [], False)
    assert settle(told, np.zeros(3, np.int8), np.ones(3, bool)).is_step.tolist() == [False, False, True]


def test_nothing_is_compared_across_a_time_without_a_price() -> None:
    told = history([10.0, 10.0, 99.0], [], False)
    rule = np.array([0, NO_PRICE, 0], np.int8)
    assert not settle(told, rule, rule == 0).is_step.any()


def test_no_events_no_steps() -> None:
    told = history([], [], True)
    assert settle(told, np.empty(0, np.int8), np.empty(0, bool)).is_step.size == 0
