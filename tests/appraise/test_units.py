from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hexcloud.appraise.row import Row
from hexcloud.appraise.units import moment, usd_per_hour

MakeRow = Callable[..., Row]


def test_a_price_per_gpu_is_multiplied_and_one_per_instance_is_not(row: MakeRow) -> None:
    assert usd_per_hour(row(price=2.5, per="gpu", gpu_count=8)) == 20
    assert usd_per_hour(row(price=2.5, per="instance", gpu_count=8)) == 2.5


def test_a_foreign_currency_is_never_taken_for_dollars(row: MakeRow) -> None:
    assert usd_per_hour(row(currency="CNY", price=172.87)) is None


def test_a_date_means_midnight_utc_and_a_zone_is_kept() -> None:
    assert moment("2026-07-20") == datetime(2026, 7, 20, tzinfo=UTC)
    assert moment("2026-07-20T02:00:00+02:00") == datetime(2026, 7, 20, tzinfo=UTC)
    zoned = moment("2026-07-20T02:00:00+02:00")
    assert zoned is not None and zoned.utcoffset() == timedelta(hours=2)


def test_what_is_no_date_is_no_moment() -> None:
    assert moment("soon") is None
    assert moment("") is None
