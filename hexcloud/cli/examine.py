"""What the gate makes of the price lists at a path, of the bundle, or of what a source said last."""

import csv
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from hexcloud import wiring
from hexcloud.adapters.files import catalog_root, is_path, load_odd_counts, load_rates, load_usual, suggest
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.adapters.markets.snapshot import COLUMNS, read_rows
from hexcloud.appraise.gate import gate
from hexcloud.appraise.known import Known
from hexcloud.controller.refresh import CLOCKS_DIFFER, known_now
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.row import Belief, Part, Row

BUNDLE = "bundle"


class Examined(NamedTuple):
    """What was found at a place."""

    beliefs: tuple[Belief, ...]
    unread: tuple[str, ...] = ()
    """What could not even be read."""


def examine(where: str) -> Examined:
    """Judge what is at a path, or what a source said last. Raises ConfigError, MarketError and StoreError."""
    if is_path(where, ".csv", ".gz"):
        return _examine_path(Path(where))
    if where == BUNDLE:
        return _examine_bundle()
    return _examine_source(where) or _examine_path(Path(where))


def _examine_path(path: Path) -> Examined:
    if not path.exists():
        sources = {BUNDLE, *(one.source for one in wiring.open_prices().refreshes())}
        raise ConfigError(
            f"{path}: no such file or folder, and no source that was ever read{suggest(str(path), sources)}"
        )
    latest = datetime.now(UTC) + CLOCKS_DIFFER
    known = known_now(wiring.open_prices(), wiring.price_facts()).model_copy(update={"latest": latest})
    if _is_offers_file(path):
        return _judged_offers((path,), known)
    parts = tuple(SkyPilotMarket(path).fetch())
    problems = tuple(part.problem for part in parts if part.problem)
    if not any(part.rows for part in parts):
        raise ConfigError(problems[0] if problems else f"{path}: lists no machine with GPUs")
    return Examined(_judged(parts, known), problems)


def _judged(parts: Iterable[Part], known: Known) -> tuple[Belief, ...]:
    return tuple(belief for part in parts for belief in gate(part.rows, known, part.content))


def _is_offers_file(path: Path) -> bool:
    """Has a file the header of `catalogs/offers`?"""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            header = file.readline(1 << 16).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return set(COLUMNS) <= {name.strip() for name in header.split(",")}


def _judged_offers(paths: Iterable[Path], known: Known) -> Examined:
    rows: list[Row] = []
    for path in paths:
        try:
            rows += read_rows(path)
        except (OSError, UnicodeError, csv.Error) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
    return Examined(gate(rows, known))


def _examine_bundle() -> Examined:
    """Judge the bundle as every plan does: by facts alone, with no memory of prices."""
    known = Known(usual_usd_per_gpu_hour=load_usual(), usd_per_unit=load_rates(), odd_counts=load_odd_counts())
    return _judged_offers(sorted((catalog_root() / "offers").glob("*.csv")), known)


def _examine_source(name: str) -> Examined | None:
    """Return what the store has of a source; None when it was never refreshed."""
    prices = wiring.open_prices()
    refreshes = [one for one in prices.refreshes() if one.source == name]
    if not refreshes:
        return None
    answered_s = max((one.good_s or 0.0 for one in refreshes), default=0.0)
    standing = (one for one in refreshes if one.problem and not (one.region == "*" and one.at_s < answered_s))
    problems = tuple(f"{one.cloud}/{one.region}: {one.problem}" for one in standing)
    return Examined(prices.said(name), problems)
