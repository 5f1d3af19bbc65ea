"""A source that says what it was told to, and what it may be told: one machine in one region."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.refresh import Facts, PartReport, refresh
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


def word_for(listing: Row, rule: str) -> Voucher:
    """The user's word for what a row lists."""
    said = {"source": listing.source, "list_price": listing.price, "currency": listing.currency}
    return Voucher.model_validate({"offer_id": listing.id, "rule": rule, "by": "user", "at_s": 0.0, **said})


def ask(prices: SqlitePrices, *parts: Part, now: datetime = NOON + 99 * HOUR) -> list[PartReport]:
    return list(refresh(Answers(*parts), prices, FACTS, lambda: now))


def listed(prices: SqlitePrices) -> list[float]:
    return [belief.row.price for belief in prices.current()]
