"""Reading recorded availability: how many machines could be had, over time, in any of the published shapes.

shape                                              meaning
{"metadata": {"gap_seconds": G}, "data": [n, ...]}  n machines could be had (0 or 1, or a count), every G seconds
480000,add,node1                                    milliseconds; the cluster is the nodes added and not removed
2021-12-11, 11:11:30, 55                            date, time (UTC), machines up
12.926,16                                           hours, machines up
[2020-03-15T10:07:33.000Z] Instance i-0ad running   log of one who keeps asking for machines: created, running, gone
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hexcloud.appraise.history import Floats, Ints
from hexcloud.domain.errors import ConfigError

MAX_BYTES = 16 << 20
"""A year of one-second samples is larger, and no recording is."""
MAX_COUNT = 1_000_000
_Point = tuple[float, int]


@dataclass(frozen=True, eq=False)
class Availability:
    """How many machines could be had, from each change on. Both arrays have one shape, times rise strictly."""

    at_s: Floats
    """Seconds since the recording began."""
    count: Ints
    start_s: float | None
    """When the recording began, seconds since the epoch; None when it does not say."""

    def count_at(self, at_s: float) -> int:
        """Return the count in force; before the recording, its first."""
        return int(self.count[max(0, int(np.searchsorted(self.at_s, at_s, side="right")) - 1)])

    def falls(self, from_s: float, to_s: float) -> tuple[tuple[float, int], ...]:
        """Return (moment, machines lost) of each fall in (from_s, to_s]."""
        first, last = np.searchsorted(self.at_s, (from_s, to_s), side="right")
        lost = self.count[:-1] - self.count[1:]
        return tuple((float(self.at_s[n]), int(lost[n - 1])) for n in range(max(1, first), last) if lost[n - 1] > 0)


def read_availability(name: str, content: bytes) -> Availability | None:
    """Return what a file's bytes record; None when they have none of the shapes. Raises ConfigError for a bad line."""
    found = next((read for shape, read in _SHAPES if shape.match(content[:512])), None)
    if found is None:
        return None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{name}: over {MAX_BYTES >> 20} MiB; no recording of availability is that long")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text (byte {error.start})") from error
    return found(name, text)


def _availability(name: str, points: Iterable[_Point], has_date: bool) -> Availability:
    """Sort the points, keep the last of each moment and then only the changes."""
    by_time = dict(sorted(points, key=lambda point: point[0]))
    if not by_time:
        raise ConfigError(f"{name}: records nothing")
    at_s, count = np.array(list(by_time), np.float64), np.array(list(by_time.values()), np.int64)
    changed = np.append(True, count[1:] != count[:-1])
    return Availability(at_s[changed] - at_s[0], count[changed], float(at_s[0]) if has_date else None)


def _read_json(name: str, text: str) -> Availability:
    try:
        found = json.loads(text)
        gap_s, data = float(found["metadata"]["gap_seconds"]), list(found["data"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ConfigError(f'{name}: must be {{"metadata": {{"gap_seconds": 600}}, "data": [1, 0, ...]}}') from error
    if not (0 < gap_s <= 1e6):
        raise ConfigError(f"{name}: metadata.gap_seconds is {gap_s:g}; it must be over 0")
    points = ((number * gap_s, _count(f"{name}: data[{number}]", one)) for number, one in enumerate(data))
    return _availability(name, points, has_date=False)


def _count(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ConfigError(f"{where} is {str(value)[:40]!r}; it must be a number of machines, 0 or more")
    return value


def _read_nodes(name: str, text: str) -> Availability:
    def steps() -> Iterator[tuple[float, str, str]]:
        for where, cells in _lines(name, text, 3):
            if cells[1] not in ("add", "remove"):
                raise ConfigError(f"{where}: {cells[1]!r} is neither add nor remove")
            yield _number(where, cells[0]) / 1000, cells[1], cells[2]

    return _availability(name, _sizes(sorted(steps(), key=lambda step: step[0])), has_date=False)


def _sizes(steps: Iterable[tuple[float, str, str]]) -> Iterator[_Point]:
    """Turn comings and goings into how many are there."""
    nodes: set[str] = set()
    for at_s, step, node in steps:
        if step == "add":
            nodes.add(node)
        else:
            nodes.discard(node)
        yield at_s, len(nodes)


def _read_hours(name: str, text: str) -> Availability:
    points = (
        (3600 * _number(where, cells[0]), _count(where, _whole(cells[1]))) for where, cells in _lines(name, text, 2)
    )
    return _availability(name, points, has_date=False)


def _read_dated(name: str, text: str) -> Availability:
    points = (
        (_moment(where, f"{cells[0]}T{cells[1]}"), _count(where, _whole(cells[2])))
        for where, cells in _lines(name, text, 3)
    )
    return _availability(name, points, has_date=True)


def _read_log(name: str, text: str) -> Availability:
    """Count the instances that run; those of all pools of the log together."""

    def steps() -> Iterator[tuple[float, str, str]]:
        for number, line in enumerate(text.splitlines(), 1):
            said = _LOG_LINE.match(line)
            if line.strip() and said is None:
                raise ConfigError(f"{name}: line {number}: does not begin with [2020-03-15T10:07:33Z]")
            if said is not None:
                step, node = _instance(said[2])
                yield _moment(f"{name}: line {number}", said[1]), step, node

    return _availability(name, _sizes(sorted(steps(), key=lambda step: step[0])), has_date=True)


def _instance(said: str) -> tuple[str, str]:
    """Return whether an instance is there now, and its name; what says neither takes nobody away."""
    if running := re.search(r"(?:Created instance|Instance) (\S+) (?:with|running)", said):
        return "add", running[1]
    if gone := re.search(r"Instance (\S+) not running|[Dd]eleted (?:instance )?(\S+)", said):
        return "remove", gone[1] or gone[2]
    return "remove", ""


def _lines(name: str, text: str, cells: int) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        found = [cell.strip() for cell in line.split(",")]
        if line.strip() and len(found) != cells:
            raise ConfigError(f"{name}: line {number}: {len(found)} cells instead of {cells}")
        if line.strip():
            yield f"{name}: line {number}", found


def _number(where: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e15:
        raise ConfigError(f"{where}: {text[:40]!r} is no time; it must be a number, 0 or more")
    return number


def _whole(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _moment(where: str, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {text[:40]!r} is no date and time") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_LOG_LINE = re.compile(r"\[([^\]]{10,40})\]\s*(.*)")
_SHAPES: tuple[tuple[re.Pattern[bytes], Callable[[str, str], Availability]], ...] = (
    (re.compile(rb"\s*\{"), _read_json),
    (re.compile(rb"\d+(\.\d+)?,\s*(add|remove)\b"), _read_nodes),
    (re.compile(rb"\d{4}-\d\d-\d\d,\s*\d\d:\d\d:\d\d,"), _read_dated),
    (re.compile(rb"\d+(\.\d+)?,\s*\d+\s*(\n|\r|$)"), _read_hours),
    (re.compile(rb"\[\d{4}-\d\d-\d\dT"), _read_log),
)
