"""SkyPilotMarket: prices of any cloud from SkyPilot's catalog files, as they stand. The gate judges them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from hexcloud.adapters.files import load_gpu_names
from hexcloud.adapters.markets.skypilot_account import Account
from hexcloud.adapters.markets.skypilot_gcp import machines, whole
from hexcloud.adapters.markets.skypilot_lines import Faults, Line, PriceList, lines, price_lists, short_name
from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.markets.skypilot_rows import SOURCE, RowMaker
from hexcloud.domain.row import Part, Row

OWN_EXPORT = ".hexcloud-export.json"
"""Names and hashes of the files that hexcloud wrote into a folder: see `skypilot_writer`."""
EVERYWHERE = "*"
MAX_LINES = 150_000
"""Of machines with GPUs, in all files of a folder: twenty times what all clouds list today, some 500 MB of memory."""


class SkyPilotMarket:
    """Implements PriceSource over `<cloud>/vms.csv` (as in `~/.sky/catalogs/v8`), `<cloud>.csv`, or one such file."""

    def __init__(
        self,
        folder: Path,
        as_of: datetime | None = None,
        clouds: tuple[str, ...] = (),
        regions: tuple[str, ...] = (),
    ) -> None:
        """Read only these clouds and regions (empty: all; in regions `*` is any text).

        `as_of`: when the prices were true, UTC where it names no zone; None: each file's time of change.
        """
        self._folder = folder
        self._as_of = as_of if as_of is None or as_of.tzinfo else as_of.replace(tzinfo=UTC)
        self._clouds = frozenset(clouds)
        self._regions = regions

    def fetch(self) -> Iterator[Part]:
        """Yield what is listed for each region of each cloud, and a part for region `*` for what cannot be read."""
        try:
            found = price_lists(self._folder)
        except OSError as error:
            yield self._problem(EVERYWHERE, f"{self._folder}: cannot be read: {error.strerror}")
            return
        if not found:
            yield self._problem(
                EVERYWHERE, f"{self._folder}: holds no SkyPilot catalog, such as aws/vms.csv or aws.csv"
            )
        told: dict[str, list[Line]] = defaultdict(list)
        for price_list in found:
            problem = self._read(price_list, told)
            if problem and (not self._clouds or price_list.cloud in self._clouds):
                yield self._problem(price_list.cloud, problem)
        where = f" in {', '.join(self._regions)}" if self._regions else ""
        for cloud in sorted(self._clouds - set(told)):
            yield self._problem(cloud, f"{self._folder}: lists nothing of cloud {cloud!r}{where}")
        if where and not told and not self._clouds:
            yield self._problem(EVERYWHERE, f"{self._folder}: lists nothing{where}")
        yield from self._parts(told)

    def _read(self, price_list: PriceList, told: dict[str, list[Line]]) -> str:
        """Add what a file says to `told`, and return what is wrong with it.

        Nothing is taken of a file that cannot be read to its end: what the rest lists would pass for gone.
        """
        if is_own(price_list.path, self._folder):
            return f"{short_name(price_list.path)}: written by hexcloud itself, so it says nothing new"
        faults = Faults()
        room = MAX_LINES - sum(len(known) for known in told.values())
        found: list[tuple[str, Line]] = []
        for line in lines(price_list.path, faults, self._as_of):
            cloud = line.cell("Cloud").lower() or price_list.cloud
            if self._wants(cloud, line):
                found.append((cloud, line))
            if len(found) > room:
                return f"{line.place}: over {MAX_LINES:,} machines with GPUs in all; nothing of this file is taken"
        for cloud, line in () if faults.is_cut else found:
            told[cloud].append(line)
        return str(faults)

    def _wants(self, cloud: str, line: Line) -> bool:
        has_gpus = bool(line.cell("AcceleratorName")) or cloud == "gcp"
        region = line.cell("Region")
        is_here = not self._regions or any(fnmatchcase(region, name) for name in self._regions)
        return has_gpus and is_here and (not self._clouds or cloud in self._clouds)

    def _parts(self, told: dict[str, list[Line]]) -> Iterator[Part]:
        folder = self._folder if self._folder.is_dir() else self._folder.parent
        maker = RowMaker(GpuNames(load_gpu_names()), Account(folder))
        for cloud in sorted(told):
            faults = Faults()
            listed = machines(told[cloud], faults) if cloud == "gcp" else (whole(line) for line in told[cloud])
            by_region: dict[str, list[Row]] = defaultdict(list)
            for machine in listed:
                for row in maker.rows(cloud, machine):
                    by_region[row.region].append(row)
            if faults.count:
                yield self._problem(cloud, str(faults))
            newest = max(line.as_of for line in told[cloud])
            yield from (_part(cloud, region, by_region[region], newest) for region in sorted(by_region))

    def _problem(self, cloud: str, problem: str) -> Part:
        as_of = self._as_of or datetime.now(UTC)
        return Part(source=SOURCE.name, cloud=cloud, region=EVERYWHERE, as_of=as_of, problem=problem)


def is_own(path: Path, folder: Path) -> bool:
    """Is a file one that hexcloud wrote into this folder, unchanged since? Its prices must not come back as news."""
    try:
        written = json.loads((folder / OWN_EXPORT).read_bytes())
        return bool(written[path.relative_to(folder).as_posix()] == hashlib.sha256(path.read_bytes()).hexdigest())
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _part(cloud: str, region: str, rows: list[Row], as_of: datetime) -> Part:
    said = sorted(row.model_dump_json(exclude={"as_of", "place"}) for row in rows)
    content = hashlib.sha256("\n".join(said).encode()).hexdigest()
    return Part(source=SOURCE.name, cloud=cloud, region=region, as_of=as_of, rows=tuple(rows), content=content)
