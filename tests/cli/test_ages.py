from datetime import UTC, datetime

import pytest

from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.cli.ages import PriceDates, age, price_dates


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (150, "2 min"), (26 * 3600, "26 h"), (3 * 86400, "3 days"), (800 * 86400, "2 years")],
)
def test_an_age_is_said_in_the_unit_a_reader_wants(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_prices_of_one_day_have_one_date_and_others_two() -> None:
    morning, evening = datetime(2026, 7, 30, 6, tzinfo=UTC), datetime(2026, 7, 30, 22, tzinfo=UTC)
    assert str(PriceDates(morning, evening)) == "2026-07-30"
    assert str(PriceDates(datetime(2026, 3, 5, tzinfo=UTC), evening)) == "2026-03-05 to 2026-07-30"


def test_the_dates_of_offers_are_those_of_the_oldest_and_the_newest() -> None:
    offers = SnapshotMarket(("verda",)).market(0.0).offers
    dates = price_dates(reversed(offers))
    assert all(dates.oldest <= offer.as_of <= dates.newest for offer in offers)
    assert set(dates) <= {offer.as_of for offer in offers}
