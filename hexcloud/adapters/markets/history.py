"""Reading recorded prices: a file or a folder of files in any known format becomes one History, as columns."""

import csv
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from hexcloud.adapters.markets.capped import read_capped
from hexcloud.adapters.markets.price_formats import FORMATS, PriceFormat, format_of, header_of
from hexcloud.appraise.history import Bools, Codes, Events, Floats, History, Ints, Machine, Standing, history_of
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Finding, Outcome

MAX_ROWS = 2_000_000
"""Of one file."""
MAX_OFFERS = 200_000
"""Of one file; AWS has under a thousand pools with GPUs."""
GONE = "GONE"
_BESIDES = (("observed_at", "commit"), ("NAME", "ZONE"))
"""Columns of tables that belong to a recording without being prices: its snapshots, and lists of zones."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_YEARS_S = (946_684_800.0, 4_102_444_800.0)
"""2000 to 2100: a cloud's price has no other date."""


class Recorded(NamedTuple):
    """A recording as read: nothing is judged yet, but lines that are no prices are told."""

    name: str
    history: History
    findings: tuple[Finding, ...]


class _Read(NamedTuple):
    batches: tuple[Events, ...]
    machines: dict[str, Machine]
    findings: tuple[Finding, ...]


def load_history(path: Path) -> Recorded:
    """Read a file, or all price files of a folder. Raises ConfigError that names the file and what was expected."""
    files = _files(path)
    read = [(found, _read(file, found, content)) for file, found, content in files]
    if not read:
        raise ConfigError(f"{path}: holds no recorded prices; {_expected()}")
    machines = {name: machine for _, one in read for name, machine in one.machines.items()}
    batches = tuple(batch for _, one in read for batch in one.batches)
    is_snapshots = all(found.is_snapshots for found, _ in read)
    return Recorded(
        name=path.name.split(".")[0],
        history=history_of(batches, is_snapshots, machines),
        findings=tuple(finding for _, one in read for finding in one.findings),
    )


def _files(path: Path) -> Iterator[tuple[Path, PriceFormat, bytes]]:
    is_folder = path.is_dir()
    names = sorted(file for file in path.iterdir() if ".csv" in file.suffixes) if is_folder else [path]
    for file in names:
        content = read_capped(file)
        header = header_of(content)
        found = format_of(header)
        if found is not None:
            yield file, found, content
        elif not (is_folder and any(set(besides) <= set(header) for besides in _BESIDES)):
            raise ConfigError(f"{file}: is no recording of prices that is known; {_expected()}")


def _expected() -> str:
    shapes = "\n".join(f"  {', '.join(one.columns)}  ({one.name})" for one in FORMATS)
    return f"the first line must have the columns of one of these:\n{shapes}"


def _read(file: Path, found: PriceFormat, content: bytes) -> _Read:
    table = _table(file, found, content)
    number, cells = _combinations(table, found.key_columns)
    if len(cells) > MAX_OFFERS:
        raise ConfigError(f"{file}: names over {MAX_OFFERS:,} offers; leave out those without GPUs")
    at_s = _moments(table[found.time]) if found.time else np.full(len(table), _day_in_name(file))
    keys = [found.key(one) for one in cells]
    units = np.array([key.units for key in keys], dtype=np.float64)[number]
    has_date = np.isfinite(at_s)
    batches, named = [], np.ones(len(keys), dtype=bool)
    for column, tenure in found.prices.items():
        ids = [key.id(tenure) for key in keys]
        named &= np.array([offer_id is not None for offer_id in ids], dtype=bool)
        usd_per_hour, standing = _prices(table[column])
        kept = has_date & named[number]
        place = np.cumsum(named) - 1
        known = tuple(offer_id for offer_id in ids if offer_id is not None)
        batches.append(Events(known, place[number[kept]], at_s[kept], (usd_per_hour * units)[kept], standing[kept]))
    machines = {key.instance_type: key.machine for key in keys if key.machine is not None}
    doubts = (("bad_date", found.time, ~has_date), ("bad_name", found.key_columns[0], ~named[number]))
    findings = [finding for rule, field, bad in doubts for finding in _finding(file, rule, field, bad)]
    return _Read(tuple(batches), machines, tuple(findings))


def _finding(file: Path, rule: str, field: str, bad: Bools) -> Iterator[Finding]:
    lines = np.flatnonzero(bad) + 2
    if lines.size:
        what = "have no date that can be read" if rule == "bad_date" else "name no offer"
        reason = f"{lines.size} lines {what}, the first is line {lines[0]}"
        row = f"{file.name}:{lines[0]}"
        yield Finding(source=file.name, row=row, field=field, outcome=Outcome.REJECT, reason=reason, rule=rule)


def _table(file: Path, found: PriceFormat, content: bytes) -> pd.DataFrame:
    """Read the needed columns as they are written."""
    try:
        table = pd.read_csv(
            BytesIO(content),
            usecols=list(found.columns),
            dtype=object,
            na_filter=False,
            nrows=MAX_ROWS + 1,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
    except (ValueError, OverflowError, csv.Error) as error:  # pandas' own errors are ValueErrors
        raise ConfigError(f"{file}: cannot be read as {found.name}: {' '.join(str(error).split())}") from error
    if len(table) > MAX_ROWS:
        raise ConfigError(f"{file}: over {MAX_ROWS:,} lines; split the recording by time")
    return table


def _texts(column: "pd.Series[str]") -> tuple[Ints, list[str]]:
    """Return a column as places in a list of its distinct texts: each is read once however often it stands there."""
    number, texts = pd.factorize(column.to_numpy(dtype=object))
    return number.astype(np.int64), [str(text).strip() for text in texts]


def _moments(column: "pd.Series[str]") -> Floats:
    """Return seconds since the epoch; NaN for what is no date."""
    number, texts = _texts(column)
    read = pd.to_datetime(pd.Series(texts, dtype="str"), utc=True, format="ISO8601", errors="coerce")
    moments = read.dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
    seconds = np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1000)
    sound = (seconds >= _YEARS_S[0]) & (seconds < _YEARS_S[1])
    return np.where(sound, seconds, np.nan)[number]


def _prices(column: "pd.Series[str]") -> tuple[Floats, Codes]:
    number, texts = _texts(column)
    values = pd.to_numeric(pd.Series(texts, dtype="str"), errors="coerce").to_numpy(dtype=np.float64)
    meaning = {"": Standing.UNPRICED, GONE: Standing.GONE}
    standing = np.array([meaning.get(text, Standing.PRICED) for text in texts], dtype=np.int8)
    return values[number], standing[number]


def _combinations(table: pd.DataFrame, columns: tuple[str, ...]) -> tuple[Ints, list[tuple[str, ...]]]:
    """Return, for each line, the place of its combination of cells in a list of the distinct ones."""
    columns_of = [_texts(table[column]) for column in columns]
    combined = np.zeros(len(table), dtype=np.int64)
    for number, texts in columns_of:
        combined = pd.factorize(combined * (len(texts) + 1) + number)[0].astype(np.int64)
    _, first = np.unique(combined, return_index=True)
    first = first[: MAX_OFFERS + 1]
    return combined, [tuple(texts[number[line]] for number, texts in columns_of) for line in first]


def _day_in_name(file: Path) -> float:
    day = _DAY.search(file.name)
    if day is None:
        raise ConfigError(f"{file}: has prices without a date; put their day into the file's name (2026-07-20)")
    try:
        return pd.Timestamp(day[0], tz="UTC").timestamp()
    except ValueError as error:
        raise ConfigError(f"{file}: {day[0]} in the file's name is no date") from error
