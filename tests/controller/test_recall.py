"""The past that a source remembers is judged by what is believed now, and comes before it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.recall import recall
from hexcloud.controller.refresh import PartReport
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import PastPart, PastPrice
from tests.controller.answers import FACTS, HOUR, NOON, ask, listed, part, row


class Remembered:
    """A source that remembers what it was told to. Implements PastSource."""

    kept_days = 90.0

    def __init__(self, *parts: PastPart) -> None:
        self._parts = parts

    def past(self, days: float) -> Iterator[PastPart]:
        since_s = (NOON - timedelta(days=days)).timestamp()
        for past in self._parts:
            yield past.model_copy(update={"prices": tuple(one for one in past.prices if one.at_s >= since_s)})


SPOT = row(1, tenure="spot").id


def remember(
    prices: SqlitePrices, *hour_and_price: tuple[int, float], days: float = 90, **odd: Any
) -> tuple[PartReport, list[float | None]]:
    """Ask for the spot prices of so many hours before (below 0) noon; return the report and all that is known then."""
    facts: dict[str, Any] = {
        "source": "neo",
        "cloud": "neo",
        "region": "eu",
        "as_of": NOON,
        "gpus": {"big8": ("H100", 8)},
    }
    said = tuple(PastPrice(SPOT, (NOON + hour * HOUR).timestamp(), price) for hour, price in hour_and_price)
    (report,) = recall(Remembered(PastPart(**{**facts, "prices": said, **odd})), prices, FACTS, days)
    return report, [change.usd_per_hour for change in prices.history(SPOT)]


def test_the_past_that_a_source_remembers_comes_before_what_it_said_first(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0), row(13.0, tenure="spot")))
    report, known = remember(prices, (-30, 11.0), (-20, 12.0), (-10, 13.0))
    assert (report.past, report.rows, report.changes, report.problem) == (True, 3, 3, "")
    assert known == [11.0, 12.0, 13.0]
    assert prices.history(SPOT)[-1].at_s == (NOON - 10 * HOUR).timestamp()
    again, known = remember(prices, (-30, 11.0), (-20, 12.0), (-10, 13.0))
    assert (again.changes, known) == (0, [11.0, 12.0, 13.0])
    assert listed(prices) == [32.0, 13.0], "what was changes nothing of what is"


def test_only_the_days_asked_for_are_kept(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0), row(13.0, tenure="spot")))
    _, known = remember(prices, (-30, 11.0), (-20, 12.0), days=1)
    assert known == [12.0, 13.0]


def test_past_prices_that_cannot_be_true_are_counted_and_never_kept(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0), row(13.0, tenure="spot")))
    report, known = remember(prices, (-30, 40.0), (-28, 0.0), (-25, 12.0), (-20, 0.01), (-10, 20.0), (-5, 13.5))
    assert known == [12.0, 13.5, 13.0]
    assert (report.outcomes[Outcome.REJECT], report.outcomes[Outcome.QUARANTINE]) == (2, 2)
    assert (report.outcomes[Outcome.ACCEPT], report.changes) == (2, 2)
    assert prices.held() == (), "no later look can confirm what was"


def test_a_past_is_judged_only_where_there_are_prices_of_now(prices: SqlitePrices) -> None:
    report, known = remember(prices, (-30, 11.0))
    assert "refresh the region first" in report.problem
    assert known == []
    ask(prices, part(0, row(32.0)))
    ask(prices, part(1, problem="timed out"))
    report, known = remember(prices, (-30, 11.0))
    assert (report.problem, known) == ("", [11.0]), "the last good answer stands"


def test_a_region_whose_past_fails_stops_no_other(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0)), part(0, row(32.0, region="us"), region="us"))
    facts: dict[str, Any] = {"source": "neo", "cloud": "neo", "as_of": NOON}
    said = (PastPrice(SPOT, (NOON - HOUR).timestamp(), 11.0),)
    parts = PastPart(region="us", problem="timed out", **facts), PastPart(region="eu", prices=said, **facts)
    reports = list(recall(Remembered(*parts), prices, FACTS, 30))
    assert [(report.region, report.problem, report.changes) for report in reports] == [
        ("us", "timed out", 0),
        ("eu", "", 1),
    ]


def test_a_past_in_another_currency_follows_the_rate_in_force(prices: SqlitePrices) -> None:
    prices.save_rate("EUR", 2.0, 0.0)
    ask(prices, part(0, row(16.0, currency="EUR"), row(7.0, tenure="spot", currency="EUR")))
    report, known = remember(prices, (-30, 6.0), (-20, 17.0), currency="EUR")
    assert (known, report.outcomes[Outcome.REJECT]) == ([12.0, 14.0], 1)
    (first, *_) = prices.history(OfferId(SPOT))
    assert (first.list_price, first.currency) == (6.0, "EUR")
