"""A refresh keeps what is believed of each region's answer, and nothing bad takes the last good answer away."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.refresh import Facts, PartReport, known_now, recall, refresh
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import PastPart, PastPrice, Voucher
from hexcloud.domain.row import Part, Row

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FACTS = Facts(usual_usd_per_gpu_hour={"H100": 4.0}, usd_per_unit={"USD": 1.0}, odd_counts={})


class Remembered:
    """A source that remembers what it was told to. Implements PastSource."""

    kept_days = 90.0

    def __init__(self, *parts: PastPart) -> None:
        self._parts = parts

    def past(self, days: float) -> Iterator[PastPart]:
        since_s = (NOON - timedelta(days=days)).timestamp()
        for part in self._parts:
            yield part.model_copy(update={"prices": tuple(one for one in part.prices if one.at_s >= since_s)})


class Answers:
    """A source that says what it was told to. Implements PriceSource."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def fetch(self) -> Iterator[Part]:
        yield from self._parts


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[SqlitePrices]:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    yield prices
    prices.close()


def row(price: float, **odd: Any) -> Row:
    facts: dict[str, Any] = {
        "cloud": "neo",
        "region": "eu",
        "instance_type": "big8",
        "tenure": "on_demand",
        "gpu": "H100",
        "gpu_count": 8,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_gb_per_s": 400,
        "price": price,
        "as_of": NOON.isoformat(),
        "source": "neo",
    }
    return Row(**{**facts, **odd})


def part(hour: int, *rows: Row, **odd: Any) -> Part:
    at = NOON + hour * HOUR
    facts: dict[str, Any] = {"source": "neo", "cloud": "neo", "region": "eu", "as_of": at, "content": f"hour {hour}"}
    return Part(**{**facts, "rows": rows, **odd})


def ask(prices: SqlitePrices, *parts: Part) -> list[PartReport]:
    return list(refresh(Answers(*parts), prices, FACTS))


def listed(prices: SqlitePrices) -> list[float]:
    return [belief.row.price for belief in prices.current()]


def test_what_is_believed_is_kept_and_counted(prices: SqlitePrices) -> None:
    (report,) = ask(prices, part(0, row(32.0), row(0.0, tenure="spot")))
    assert (report.rows, report.changes, report.problem) == (2, 1, "")
    assert (report.outcomes[Outcome.ACCEPT], report.outcomes[Outcome.REJECT]) == (1, 1)
    assert listed(prices) == [32.0]


@pytest.mark.parametrize(
    "bad",
    [part(1, problem="credentials expired; log in again"), part(1)],
    ids=["failed", "empty"],
)
def test_a_bad_answer_keeps_the_last_good_one(prices: SqlitePrices, bad: Part) -> None:
    ask(prices, part(0, row(32.0)))
    (report,) = ask(prices, bad)
    assert report.problem
    assert report.good_s == NOON.timestamp()
    assert listed(prices) == [32.0]


def test_a_half_written_answer_keeps_the_last_good_one(prices: SqlitePrices) -> None:
    rows = [row(32.0, zone=zone) for zone in "abcd"]
    ask(prices, part(0, *rows))
    (report,) = ask(prices, part(1, rows[0]))
    assert "half-written" in report.problem
    assert len(listed(prices)) == 4
    (again,) = ask(prices, part(2, rows[0]))
    assert again.problem == ""
    assert len(listed(prices)) == 1, "a second answer like it, with other content, is the truth"


def test_one_region_that_fails_stops_no_other(prices: SqlitePrices) -> None:
    reports = ask(prices, part(0, region="us", problem="timed out"), part(0, row(32.0)))
    assert [bool(report.problem) for report in reports] == [True, False]
    assert listed(prices) == [32.0]


def test_a_step_waits_for_a_second_snapshot_with_other_content(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0)))
    ask(prices, part(1, row(18.0)))
    assert listed(prices) == [32.0], "one snapshot may be a mistake"
    ask(prices, part(2, row(18.0), content="hour 1"))
    assert listed(prices) == [32.0], "the same snapshot again says nothing new"
    ask(prices, part(3, row(18.0)))
    assert listed(prices) == [18.0]
    assert [change.usd_per_hour for change in prices.history(row(1).id)] == [32.0, 18.0]


def test_a_price_far_too_low_is_freed_by_a_voucher_only(prices: SqlitePrices) -> None:
    for hour in range(3):
        ask(prices, part(hour, row(0.5)))
    assert listed(prices) == []
    prices.vouch(Voucher(offer_id=row(1).id, by="user", at_s=0.0))
    ask(prices, part(3, row(0.5)))
    assert listed(prices) == [0.5]


def test_an_independent_source_frees_an_odd_count_and_a_copy_of_it_does_not(prices: SqlitePrices) -> None:
    odd = row(32.0, gpu_count=6)
    ask(prices, part(0, odd.model_copy(update={"source": "copy", "lineage": "neo"}), source="copy"))
    ask(prices, part(1, odd))
    assert listed(prices) == []
    witness = odd.model_copy(update={"source": "tracker", "price": 33.0})
    prices.vouch(Voucher(offer_id=odd.id, by="user", at_s=0.0))
    ask(prices, part(2, witness, source="tracker"))
    assert [belief.row.source for belief in prices.current()] == ["tracker"]


def test_a_currency_without_a_rate_is_not_believed_and_the_users_rate_mends_it(prices: SqlitePrices) -> None:
    euros = row(30.0, currency="EUR")
    ask(prices, part(0, euros))
    assert listed(prices) == []
    prices.save_rate("EUR", 1.1, 0.0)
    ask(prices, part(1, euros))
    (belief,) = prices.current()
    assert belief.usd_per_unit == 1.1


def test_a_new_rate_is_no_step(prices: SqlitePrices) -> None:
    euros = row(30.0, currency="EUR")
    prices.save_rate("EUR", 1.0, 0.0)
    ask(prices, part(0, euros))
    prices.save_rate("EUR", 1.9, 1.0)
    (report,) = ask(prices, part(1, euros))
    assert (report.changes, report.outcomes[Outcome.QUARANTINE]) == (0, 0)


def test_what_is_known_is_what_was_accepted(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0), row(0.01, instance_type="odd8")))
    known = known_now(prices, FACTS)
    assert dict(known.last) == {("neo", row(1).id): (32.0, "USD")}
    assert [held.offer_id for held in known.held] == [row(1, instance_type="odd8").id]


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
