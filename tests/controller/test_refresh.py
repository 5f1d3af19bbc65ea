"""A refresh keeps what is believed of each region's answer, and nothing bad takes the last good answer away."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.refresh import Facts, PartReport, known_now, refresh
from hexcloud.domain.market import Outcome
from hexcloud.domain.prices import Voucher
from hexcloud.domain.row import Part, Row

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FACTS = Facts(usual_usd_per_gpu_hour={"H100": 4.0}, usd_per_unit={"USD": 1.0}, odd_counts={})


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
