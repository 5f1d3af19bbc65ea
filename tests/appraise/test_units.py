import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from hexcloud.appraise.units import moment, rate, usd_per_hour
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]
RATES = {"USD": 1.0, "CNY": 0.14}


def test_a_price_per_gpu_is_multiplied_and_one_per_instance_is_not(row: MakeRow) -> None:
    assert usd_per_hour(row(price=2.5, per="gpu", gpu_count=8), RATES) == 20
    assert usd_per_hour(row(price=2.5, per="instance", gpu_count=8), RATES) == 2.5


def test_a_foreign_currency_is_never_taken_for_dollars(row: MakeRow) -> None:
    assert usd_per_hour(row(currency="CNY", price=172.87), RATES) == pytest.approx(24.2018)
    assert usd_per_hour(row(currency="CNY", price=172.87), {"USD": 1.0}) is None


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0, -0.14])
def test_a_rate_that_converts_nothing_is_none(broken: float) -> None:
    assert rate("CNY", {"CNY": broken}) is None
    assert rate("CNY", {}) is None
    assert rate("CNY", RATES) == 0.14


def test_a_date_means_midnight_utc_and_a_zone_is_kept() -> None:
    assert moment("2026-07-20") == datetime(2026, 7, 20, tzinfo=UTC)
    assert moment("2026-07-20T02:00:00+02:00") == datetime(2026, 7, 20, tzinfo=UTC)
    zoned = moment("2026-07-20T02:00:00+02:00")
    assert zoned is not None and zoned.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("text", ["soon", "", "2026-13-01", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:00-23:59"])
def test_what_no_clock_can_show_is_no_moment(text: str) -> None:
    assert moment(text) is None
