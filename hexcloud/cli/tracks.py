"""Tracks: the price of each offer of a name over time, from the memory of prices or from a recording."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexcloud.appraise.history import History
    from hexcloud.domain.market import Finding
    from hexcloud.domain.offer import OfferId
    from hexcloud.domain.prices import PriceChange

BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Change:
    """From `at_s` on, seconds since the epoch, an offer cost this; None: it was not for sale."""

    at_s: float
    usd_per_hour: float | None


@dataclass(frozen=True)
class Track:
    """One offer's price at one source. Changes are in order of time."""

    offer_id: "OfferId"
    source: str
    changes: tuple[Change, ...]
    confirmed_s: float
    """When the last price was last seen, seconds since the epoch."""

    def change_at(self, at_s: float) -> Change | None:
        """Return the change in force at a moment; None before the first."""
        past = bisect_right(self.changes, at_s, key=lambda change: change.at_s)
        return self.changes[past - 1] if past else None

    def between(self, since_s: float, until_s: float) -> "Track":
        """Return the changes in force from one moment to another: the first of them may be older than both."""
        before = self.change_at(since_s)
        kept = tuple(change for change in self.changes if since_s < change.at_s <= until_s)
        return replace(self, changes=(before, *kept) if before else kept, confirmed_s=min(self.confirmed_s, until_s))

    def prices(self) -> tuple[float, ...]:
        """Return all prices it ever had, in order of time."""
        return tuple(change.usd_per_hour for change in self.changes if change.usd_per_hour is not None)

    def sparkline(self, since_s: float, until_s: float, width: int = 40) -> str:
        """Draw the price over time in one line of text; a space where there was none."""
        step_s = (until_s - since_s) / width
        found = [self.change_at(since_s + step_s * (column + 0.5)) for column in range(width)]
        prices = [change.usd_per_hour if change else None for change in found]
        known = [price for price in prices if price is not None]
        if not known:
            return " " * width
        least, span = min(known), max(known) - min(known)
        levels = [None if price is None else (price - least) / span if span else 0.5 for price in prices]
        return "".join(" " if level is None else BLOCKS[min(7, int(level * 8))] for level in levels)


@dataclass(frozen=True)
class Tracks:
    """All offers of a name, and what the gate said of their recording."""

    tracks: tuple[Track, ...]
    findings: "tuple[Finding, ...]" = ()

    @property
    def first_s(self) -> float:
        """Moment of the first change, seconds since the epoch."""
        return min(track.changes[0].at_s for track in self.tracks)

    @property
    def last_s(self) -> float:
        """When the last of them was last seen."""
        return max(track.confirmed_s for track in self.tracks)


def every_offer(name: str) -> str:
    """Return the pattern of a name: a machine type by itself (`p5.48xlarge`) is all offers of it."""
    return name if "/" in name or "*" in name else f"*/{name}/*"


def recorded_tracks(path: Path, pattern: str) -> Tracks:
    """Read the offers of a pattern from a recording, through the gate. Raises ConfigError when there are none."""
    from hexcloud.adapters.files import hint
    from hexcloud.adapters.markets.judged_recording import judged_recording
    from hexcloud.domain.errors import ConfigError

    name, judged, flaws = judged_recording(path)
    believed, wanted = judged.believed(), every_offer(pattern)
    ids = [offer_id for offer_id in believed.ids if fnmatchcase(offer_id, wanted)]
    if not ids:
        meant = hint(pattern, believed.ids) or f"; it has {len(believed.ids)}, such as {believed.ids[0]}"
        raise ConfigError(f"{path}: records no offer {pattern!r}{meant}")
    last_s = judged.history.last_s
    tracks = [_recorded(believed, offer_id, name, last_s) for offer_id in ids]
    shown = tuple(track for track in tracks if track.changes)
    findings = (*flaws, *judged.findings(name, ids))
    if not shown:
        raise ConfigError(f"{path}: of {pattern!r} no price is believed: {'; '.join(one.reason for one in findings)}")
    return Tracks(shown, findings)


def stored_tracks(pattern: str) -> Tracks:
    """Read the offers of a pattern from the memory of prices. Raises ConfigError when it has none, and StoreError."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.offer import OfferId

    changes = sorted(wiring.open_prices().history(OfferId(every_offer(pattern))), key=_whose)
    if not changes:
        raise ConfigError(
            f"no price of {pattern!r} is remembered; `hexcloud catalog refresh` reads prices, --from PATH a recording"
        )
    return Tracks(tuple(_stored(tuple(mine)) for _, mine in groupby(changes, key=_whose)))


def _whose(change: "PriceChange") -> tuple[str, str]:
    return (change.offer_id, change.source)


def _stored(changes: "tuple[PriceChange, ...]") -> Track:
    in_order = sorted(changes, key=lambda change: change.at_s)
    return Track(
        offer_id=changes[0].offer_id,
        source=changes[0].source,
        changes=tuple(Change(change.at_s, change.usd_per_hour) for change in in_order),
        confirmed_s=in_order[-1].confirmed_s,
    )


def _recorded(believed: "History", offer_id: "OfferId", source: str, last_s: float) -> Track:
    """Take one series out of a history, without what only repeats the price before it."""
    where = believed.series(offer_id)
    prices = [price if price > 0 else None for price in believed.usd_per_hour[where].tolist()]
    events = zip(believed.at_s[where].tolist(), prices, [..., *prices], strict=False)
    changes = tuple(Change(at_s, price) for at_s, price, before in events if price != before)
    return Track(offer_id, source, changes, last_s)
