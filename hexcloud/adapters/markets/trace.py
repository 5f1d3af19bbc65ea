"""Trace: what happens to prices and capacity during a run, recorded or made up, and TraceMarket, which plays it.

A trace is a CSV file with the columns `at_h,event,offer,usd_per_hour,count`; lines that begin with `#` are comments.
`at_h` is hours of the run clock since the run began, `offer` an offer id in which `*` stands for anything.

event     meaning
price     from now on these offers cost usd_per_hour: a number, or `x1.6` for 1.6 times the source's own price
preempt   the provider takes `count` (default 1) machines of these pools back, without notice
sold_out  these offers have stock 0 for new machines; what runs may stay
back      their stock is the source's own again
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import Field, field_validator

from hexcloud.adapters.files import catalog_root, is_path, suggest
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Finding, Market, Outcome
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.ports import MarketSource

COLUMNS = ("at_h", "event", "offer", "usd_per_hour", "count")
TRACE_SUFFIX = ".csv"
_HEAD_BYTES = 64 << 10
"""A header stands in the first of these, after all comments."""
UNMET = "unmet"
"""Rule of the findings about what a trace names and no offer has."""


class TraceKind(StrEnum):
    """What can happen."""

    PRICE = "price"
    PREEMPT = "preempt"
    SOLD_OUT = "sold_out"
    BACK = "back"


class TraceEvent(Frozen):
    """One line of a trace."""

    at_s: float = Field(ge=0)
    """Run-clock seconds since the run began."""
    kind: TraceKind
    offer: str
    """Offer id, `*` stands for anything."""
    usd_per_hour: float | None = Field(default=None, gt=0)
    factor: float | None = Field(default=None, gt=0)
    """Of the source's own price; never of an earlier event's."""
    count: int = Field(default=1, gt=0)

    def touches(self, offer_id: OfferId) -> bool:
        """Is this offer meant?"""
        return fnmatchcase(offer_id, self.offer)


class Trace(Frozen):
    """A trace that somebody wrote: all events of a run in order of time. Implements MarketTrace."""

    name: str
    events: tuple[TraceEvent, ...]
    """Those of one moment in order of the file."""

    @field_validator("events")
    @classmethod
    def _in_order(cls, events: tuple[TraceEvent, ...]) -> tuple[TraceEvent, ...]:
        return tuple(sorted(events, key=lambda event: event.at_s))

    def preemptions(self, from_s: float, to_s: float) -> tuple[TraceEvent, ...]:
        """Return the preemptions in (from_s, to_s], run-clock seconds since the run began."""
        return tuple(event for event in self.events if event.kind is TraceKind.PREEMPT and from_s < event.at_s <= to_s)

    def is_sold_out(self, offer_id: OfferId, at_s: float) -> bool:
        """Does the provider refuse new machines of this offer at a moment, seconds since the run began?"""
        last = self._last(offer_id, at_s, (TraceKind.SOLD_OUT, TraceKind.BACK))
        return last is not None and last.kind is TraceKind.SOLD_OUT

    def price(self, offer: Offer, at_s: float) -> "TracePrice | None":
        """Return what an offer costs at a moment; None while the source's own price holds."""
        event = self._last(offer.id, at_s, (TraceKind.PRICE,))
        if event is None:
            return None
        return TracePrice(event.usd_per_hour or offer.usd_per_hour * (event.factor or 1.0), event.at_s)

    def unmet(self, offers: tuple[Offer, ...]) -> tuple[str, ...]:
        """Return the patterns that meet no offer."""
        patterns = sorted({event.offer for event in self.events})
        return tuple(one for one in patterns if not any(fnmatchcase(offer.id, one) for offer in offers))

    def _last(self, offer_id: OfferId, at_s: float, kinds: tuple[TraceKind, ...]) -> TraceEvent | None:
        past = (event for event in reversed(self.events) if event.at_s <= at_s and event.kind in kinds)
        return next((event for event in past if event.touches(offer_id)), None)


class TracePrice(NamedTuple):
    """What a trace makes an offer cost."""

    usd_per_hour: float
    true_at_s: float
    """When it was true, run-clock seconds since the run began; negative before that."""
    proven: bool | None = None
    """None: as the source says."""


class MarketTrace(Protocol):
    """What happens to prices and capacity during a run, made up or recorded. Run-clock seconds since the run began."""

    @property
    def name(self) -> str:
        """What a reader calls it."""
        ...

    def price(self, offer: Offer, at_s: float) -> TracePrice | None:
        """Return what an offer costs at a moment; None while the source's own price holds."""
        ...

    def is_sold_out(self, offer_id: OfferId, at_s: float) -> bool:
        """Does the provider refuse new machines of this offer at a moment?"""
        ...

    def preemptions(self, from_s: float, to_s: float) -> Sequence[TraceEvent]:
        """Return the preemptions in (from_s, to_s], in order."""
        ...

    def unmet(self, offers: tuple[Offer, ...]) -> tuple[str, ...]:
        """Return what the trace names and no offer has: a misspelt id, or a cloud that was not asked for."""
        ...


class TraceMarket:
    """A market source with a trace played over it. Implements MarketSource."""

    def __init__(self, source: MarketSource, trace: MarketTrace, origin_s: float) -> None:
        """`origin_s` is the run clock at the run's beginning, seconds since the epoch."""
        self._source = source
        self._trace = trace
        self._origin_s = origin_s

    def market(self, now_s: float) -> Market:
        """Return the source's market with every past event applied. Raises MarketError as the source does."""
        market = self._source.market(now_s)
        offers = tuple(self._shifted(offer, now_s - self._origin_s) for offer in market.offers)
        findings = market.findings + self._idle_events(market.offers)
        return market.model_copy(update={"offers": offers, "findings": findings})

    def _shifted(self, offer: Offer, at_s: float) -> Offer:
        update: dict[str, object] = {}
        price = self._trace.price(offer, at_s)
        if price is not None:
            update["usd_per_hour"] = price.usd_per_hour
            update["as_of"] = datetime.fromtimestamp(self._origin_s + price.true_at_s, UTC)
            update["source"] = f"trace {self._trace.name}"
            update["proven"] = offer.proven if price.proven is None else price.proven
        if self._trace.is_sold_out(offer.id, at_s):
            update["stock"] = 0
        return offer.model_copy(update=update) if update else offer

    def _idle_events(self, offers: tuple[Offer, ...]) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                source=f"trace {self._trace.name}",
                row=named,
                field="offer",
                outcome=Outcome.FLAG,
                reason="meets no offer of this market, so it does nothing",
                rule=UNMET,
            )
            for named in self._trace.unmet(offers)
        )


def load_trace(name_or_path: str) -> Trace:
    """Read a bundled trace by name or the user's own by path. Raises ConfigError that names file, line and column."""
    path = Path(name_or_path)
    if not is_path(name_or_path, TRACE_SUFFIX):
        folder = catalog_root() / "traces"
        path = folder / f"{name_or_path}.csv"
        if not path.is_file():
            known = [file.stem for file in folder.glob("*.csv")]
            own = f"; your own is ./{name_or_path}" if Path(name_or_path).exists() else ""
            raise ConfigError(f"trace {name_or_path!r} is unknown{own or suggest(name_or_path, known)}")
    try:
        return written_trace(path, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def written_trace(path: Path, content: bytes) -> Trace:
    """Return the events in a file's bytes. Raises ConfigError that names file, line and column."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    return Trace(name=path.name.split(".")[0], events=tuple(_events(str(path), text.splitlines())))


def is_written(content: bytes) -> bool:
    """Does a file begin like events that somebody wrote? One of nothing but comments does, too."""
    lines = content[:_HEAD_BYTES].decode("utf-8-sig", errors="replace").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), None)
    return first is None or first == ",".join(COLUMNS)


def _events(name: str, lines: list[str]) -> Iterator[TraceEvent]:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    rows = csv.reader(line for _, line in numbered)
    for (number, _), row in zip(numbered, rows, strict=True):
        if number == numbered[0][0]:
            _check_header(name, row)
        else:
            yield _event(f"{name}: line {number}", row)


def _check_header(name: str, header: Iterable[str]) -> None:
    if tuple(header) != COLUMNS:
        raise ConfigError(f"{name}: the first line must be {','.join(COLUMNS)}")


def _event(where: str, row: list[str]) -> TraceEvent:
    if len(row) != len(COLUMNS):
        raise ConfigError(f"{where}: {len(row)} columns instead of {len(COLUMNS)}")
    at_h, kind, offer, price, count = (cell.strip() for cell in row)
    if kind not in tuple(TraceKind):
        raise ConfigError(f"{where}: event {kind!r} is unknown{suggest(kind, TraceKind)}")
    if not offer:
        raise ConfigError(f"{where}: offer is missing; write an offer id, * stands for anything")
    if (kind == TraceKind.PRICE) != bool(price):
        raise ConfigError(f"{where}: usd_per_hour belongs to price events, and to all of them")
    is_factor = price.startswith("x")
    amount = _positive(where, "usd_per_hour", price.removeprefix("x")) if price else None
    return TraceEvent(
        at_s=3600 * _at_least_zero(where, "at_h", at_h),
        kind=TraceKind(kind),
        offer=offer,
        usd_per_hour=None if is_factor else amount,
        factor=amount if is_factor else None,
        count=_whole(where, "count", count or "1"),
    )


def _at_least_zero(where: str, column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ConfigError(f"{where}: {column} is {text!r}; it must be a number, 0 or more")
    return number


def _positive(where: str, column: str, text: str) -> float:
    number = _at_least_zero(where, column, text)
    if number == 0:
        raise ConfigError(f"{where}: {column} is 0; it must be over 0")
    return number


def _whole(where: str, column: str, text: str) -> int:
    number = _positive(where, column, text)
    if not number.is_integer():
        raise ConfigError(f"{where}: {column} is {text!r}; it must be a whole number")
    return int(number)
