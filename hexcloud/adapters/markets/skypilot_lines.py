"""The lines of SkyPilot's catalog files, whatever their column order: found, unpacked and cut into cells with limits.

Each line of a file stands alone: a broken one costs itself and a word in the report, never the lines after it.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple, cast

MAX_LINE_BYTES = 1 << 16
MAX_FILE_BYTES = 1 << 29
"""After unpacking. The largest real file (all machines of AWS) has 30 MB."""
NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price")
BY_THE_WAY = ("images", "accelerators", "metadata", "quota", "az_mappings")
"""Words in the names of files that lie beside the price lists and list no prices."""
_GZIP_MAGIC = b"\x1f\x8b"
_SUFFIXES = (".csv", ".csv.gz")


class PriceList(NamedTuple):
    """One file of prices."""

    path: Path
    cloud: str
    """What the file's place says; a `Cloud` column goes before it."""


class Line(NamedTuple):
    """One line with its cells by column name."""

    cells: dict[str, str]
    place: str
    """`aws.csv:17`."""
    as_of: datetime
    """When the file's prices were true."""

    def cell(self, column: str) -> str:
        """Return the text of a column; empty where the file does not have it, or says `nan`."""
        text = self.cells.get(column, "").strip()
        return "" if text.lower() in ("nan", "none", "null") else text


class Faults:
    """What could not be read of one file, counted; the first is kept for people."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.is_cut = False
        """Is the file's end unread?"""

    def add(self, place: str, what: str) -> None:
        """Count one."""
        self.first = self.first or f"{place}: {what}"
        self.count += 1

    def __str__(self) -> str:
        more = f" ({self.count - 1} more like it)" if self.count > 1 else ""
        return self.first + more


def price_lists(path: Path) -> tuple[PriceList, ...]:
    """Find the price lists at a path: one file, a flat folder of `<cloud>.csv`, or folders `<cloud>/vms.csv`.

    Packed files (`.gz`) count. Raises OSError when the path cannot be read.
    """
    if not path.is_dir():
        return (PriceList(path, _cloud_of(path)),)
    nested = [file for folder in sorted(path.iterdir()) if folder.is_dir() for file in sorted(folder.glob("vms.csv*"))]
    flat = [file for file in sorted(path.iterdir()) if file.is_file() and _is_price_list(file)]
    return tuple(PriceList(file, _cloud_of(file)) for file in (*nested, *flat) if file.name.endswith(_SUFFIXES))


def lines(
    path: Path, faults: Faults, as_of: datetime | None = None, needed: tuple[str, ...] = NEEDED
) -> Iterator[Line]:
    """Yield the lines of a file that have as many cells as the header. All that is wrong goes to `faults`.

    `as_of` None: the file's time of change.
    """
    name = short_name(path)
    try:
        changed_s = path.stat().st_mtime
        true_at = as_of or datetime.fromtimestamp(changed_s, UTC)
        if not path.is_file():
            faults.add(name, "is no file")
            return
        with _open(path) as file:
            for number, cells in _cut(file, name, faults, needed):
                yield Line(cells, f"{name}:{number}", true_at)
    except (OSError, EOFError, zlib.error, OverflowError) as error:
        faults.is_cut = True
        faults.add(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _cut(file: IO[bytes], name: str, faults: Faults, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    header: list[str] = []
    seen = 0
    for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
        seen += len(raw)
        if seen > MAX_FILE_BYTES:
            faults.is_cut = True
            faults.add(f"{name}:{number}", f"over {MAX_FILE_BYTES >> 20} MiB; the rest is not read")
            return
        cells = _cells(raw)
        if cells == []:
            continue
        if not header:
            header = [cell.strip() for cell in cells or ()]
            missing = [column for column in needed if column not in header]
            if missing:
                faults.add(name, f"no catalog of SkyPilot: column {missing[0]} is missing")
                return
        elif cells is None or len(cells) != len(header):
            given = "too long or not text" if cells is None else f"{len(cells)} cells, the header has {len(header)}"
            faults.add(f"{name}:{number}", given)
        else:
            yield number, dict(zip(header, cells, strict=True))
    if not header:
        faults.add(name, "is empty")


def _cells(raw: bytes) -> list[str] | None:
    """Cut one line; None for what is no text or longer than any honest line."""
    if len(raw) >= MAX_LINE_BYTES and not raw.endswith(b"\n"):
        return None
    try:
        text = raw.decode("utf-8-sig")
        return next(csv.reader([text.strip()], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_packed = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path)) if is_packed else path.open("rb")


def _is_price_list(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES) and not any(word in path.name for word in BY_THE_WAY)


def _cloud_of(path: Path) -> str:
    stem = path.name.split(".")[0]
    return path.parent.name if stem == "vms" else stem.removesuffix("-hosts")


def short_name(path: Path) -> str:
    """Return how reports name a file."""
    return f"{path.parent.name}/{path.name}" if path.name.startswith("vms.") else path.name
