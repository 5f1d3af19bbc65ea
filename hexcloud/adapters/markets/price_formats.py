"""Price formats: the shapes in which recorded prices are published, each told by the columns of its header.

All prices are USD per hour. `GONE` says that the row left the catalog, an empty cell that it is listed without a price.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hexcloud.appraise.history import Machine
from hexcloud.domain.offer import OfferId, Tenure

SPOT, ON_DEMAND = Tenure.SPOT.value, Tenure.ON_DEMAND.value


class Key(NamedTuple):
    """Whose price a row is."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    tenure: str = ""
    """Empty where the price's column says it."""
    machine: Machine | None = None
    units: float = 1.0
    """How many of what is priced make the whole machine: its GPUs where prices are per GPU."""

    def id(self, tenure: str) -> OfferId | None:
        """Return the offer's id; None when a part is missing, or would be read as something else in an id."""
        parts = (self.cloud, self.region, self.zone, self.instance_type, self.tenure or tenure)
        return OfferId("/".join(parts)) if all(_NAME.fullmatch(part) for part in parts) else None


@dataclass(frozen=True)
class PriceFormat:
    """One published shape."""

    name: str
    prices: Mapping[str, str]
    """Column -> tenure; empty where `key` tells the tenure."""
    key_columns: tuple[str, ...]
    key: Callable[[tuple[str, ...]], Key]
    """Takes the cells of `key_columns`."""
    time: str = ""
    """Column of the moment; empty: one moment for the whole file, a date in its name."""
    is_snapshots: bool = True
    """See History."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*((self.time,) if self.time else ()), *self.key_columns, *self.prices)


def format_of(header: tuple[str, ...]) -> PriceFormat | None:
    """Return the format with the most columns among those that a header has all of."""
    fitting = [one for one in FORMATS if set(one.columns) <= set(header)]
    return max(fitting, key=lambda one: len(one.columns), default=None)


def header_of(content: bytes) -> tuple[str, ...]:
    """Return the names in a table's first line."""
    line = content[:4096].split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip()
    return tuple(name.strip().strip('"') for name in line.split(";" if ";" in line else ","))


def is_price_file(content: bytes) -> bool:
    """Does a table's first line name the columns of a known format?"""
    return format_of(header_of(content)) is not None


def region_of_zone(zone: str) -> str:
    """Return the AWS region of a zone: `euw3-az2` and `eu-west-3a` are in `eu-west-3`; empty for what is neither."""
    if named := _ZONE_NAME.fullmatch(zone):
        return named[1]
    parts = _ZONE_ID.fullmatch(zone)
    if parts is None:
        return ""
    area, government, direction, number = parts.groups()
    return f"{area}{'-gov' if government else ''}-{_DIRECTIONS[direction]}-{number}"


def _gpus(gpu: str, count: str) -> Machine:
    try:
        return Machine(gpu, float(count))
    except ValueError:
        return Machine(gpu, math.nan)


def _tracked(cells: tuple[str, ...]) -> Key:
    """A row of the tracker of small clouds, where machines have no names: `8x-H100_SXM`."""
    provider, gpu, count, region, tenure = cells
    machine = _gpus(TRACKED_GPUS.get(gpu, gpu), count)
    cloud = provider.strip().lower().replace(" ", "-")
    is_sound = tenure in (SPOT, ON_DEMAND) and machine.gpu_count >= 1 and machine.gpu_count.is_integer()
    instance_type = f"{machine.gpu_count:.0f}x-{gpu}" if is_sound else ""
    return Key(cloud, region.replace(" ", "-"), "-", instance_type, tenure, machine, machine.gpu_count)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+ -]*|-")
_ZONE_NAME = re.compile(r"([a-z]{2}(?:-gov|-iso[a-z]?)?-[a-z]+-\d)[a-z]")
_ZONE_ID = re.compile(r"([a-z]{2})(g?)(n|s|e|w|c|ne|nw|se|sw)(\d)(?:-[a-z0-9]+)?-az\d+")
_DIRECTIONS = {
    "n": "north",
    "s": "south",
    "e": "east",
    "w": "west",
    "c": "central",
    "ne": "northeast",
    "nw": "northwest",
    "se": "southeast",
    "sw": "southwest",
}
TRACKED_GPUS = {
    "A100_SXM_80GB": "A100-80GB",
    "A100_PCIE_80GB": "A100-80GB-PCIe",
    "A100_SXM_40GB": "A100-40GB",
    "A100_PCIE_40GB": "A100-40GB-PCIe",
    "H100_SXM": "H100",
    "H100_PCIE": "H100-PCIe",
    "H100_NVL": "H100-NVL",
    "RTX_4090": "RTX4090",
    "RTX_5090": "RTX5090",
    "RTX_PRO_6000": "RTX-PRO-6000",
}
"""The tracker's names of GPUs -> ours; others keep theirs."""

FORMATS = (
    PriceFormat(
        name="AWS spot changes between catalog snapshots",
        time="observed_at",
        key_columns=("region", "az_id", "instance_type"),
        key=lambda cells: Key("aws", cells[0], cells[1], cells[2]),
        prices={"spot_usd_per_hour": SPOT},
    ),
    PriceFormat(
        name="AWS on-demand changes between catalog snapshots",
        time="observed_at",
        key_columns=("region", "instance_type"),
        key=lambda cells: Key("aws", cells[0], "-", cells[1]),
        prices={"on_demand_usd_per_hour": ON_DEMAND},
    ),
    PriceFormat(
        name="AWS spot events by zone id",
        time="timestamp",
        key_columns=("az_id", "instance_type"),
        key=lambda cells: Key("aws", region_of_zone(cells[0]), cells[0], cells[1]),
        prices={"spot_usd_per_hour": SPOT},
        is_snapshots=False,
    ),
    PriceFormat(
        name="AWS spot events by zone name",
        time="timestamp",
        key_columns=("az", "instance_type"),
        key=lambda cells: Key("aws", region_of_zone(cells[0]), cells[0], cells[1]),
        prices={"spot_usd_per_hour": SPOT},
        is_snapshots=False,
    ),
    PriceFormat(
        name="AWS on-demand prices of a day",
        key_columns=("region", "instance_type"),
        key=lambda cells: Key("aws", cells[0], "-", cells[1]),
        prices={"on_demand_usd_per_hour": ON_DEMAND},
    ),
    PriceFormat(
        name="AWS on-demand prices of a day, with GPUs",
        key_columns=("region", "instance_type", "gpu", "gpu_count"),
        key=lambda cells: Key("aws", cells[0], "-", cells[1], machine=_gpus(cells[2], cells[3])),
        prices={"on_demand_per_hour": ON_DEMAND},
    ),
    PriceFormat(
        name="GCP price changes",
        time="observed_at",
        key_columns=("region", "machine_type"),
        key=lambda cells: Key("gcp", cells[0], "-", cells[1]),
        prices={"on_demand_usd_per_hour": ON_DEMAND, "spot_usd_per_hour": SPOT},
    ),
    PriceFormat(
        name="GCP prices of a day",
        key_columns=("region", "machine_type"),
        key=lambda cells: Key("gcp", cells[0], "-", cells[1]),
        prices={"on_demand_usd_per_hour": ON_DEMAND, "spot_usd_per_hour": SPOT},
    ),
    PriceFormat(
        name="daily observations of many clouds, per GPU",
        time="date",
        key_columns=("provider", "gpu_model", "gpu_count", "region", "rental_type"),
        key=_tracked,
        # The least price: units differ within one row, and the median of such a mix is that of whole machines.
        prices={"price_min_usd": ""},
        is_snapshots=False,
    ),
)
"""An AWS catalog has prices of zones by id: letters differ from account to account."""
