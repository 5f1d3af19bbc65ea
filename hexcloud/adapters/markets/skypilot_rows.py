"""One machine of a SkyPilot catalog as price rows: one per market in which it has a price."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from hexcloud.adapters.markets.skypilot_account import Account, Sizes
from hexcloud.adapters.markets.skypilot_gcp import Machine
from hexcloud.adapters.markets.skypilot_names import GpuNames, Listed, gpu_info
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row, Source

SOURCE = Source(name="skypilot", lineage="skypilot")


class ListedIn(NamedTuple):
    """A cloud, or its regions that begin with `region`, whose prices are no US dollars whatever the header says."""

    cloud: str
    region: str
    currency: str
    reason: str


OTHER_CURRENCIES = (
    ListedIn("aws", "cn-", "CNY", "AWS China lists in yuan: p4d.24xlarge at 172.87, where other regions say 21.96"),
    ListedIn("scaleway", "", "EUR", "the figures are Scaleway's list prices in euro: H100-1-80G at 2.52 an hour"),
)
"""OVHcloud is none of them: t1-le-45 is listed at 0.77 and t2-le-45 at 0.88; in euro they are 0.70 and 0.80."""

_COLUMNS = {Tenure.ON_DEMAND: "Price", Tenure.SPOT: "SpotPrice"}


class RowMaker:
    """Makes rows of machines, with the names, networks and quotas that the catalog does not have."""

    def __init__(self, names: GpuNames, account: Account) -> None:
        self._names = names
        self._account = account

    def rows(self, cloud: str, machine: Machine) -> Iterator[Row]:
        """Yield a row for each market with a price; for a machine without any, one that has none (NaN)."""
        priced = {tenure: _total(machine, column) for tenure, column in _COLUMNS.items()}
        asked = {tenure: total for tenure, total in priced.items() if total is not None}
        for tenure, (price, missing) in (asked or {Tenure.ON_DEMAND: (math.nan, "")}).items():
            yield self._row(cloud, machine, tenure).model_copy(
                update={"price": price, "missing": machine.missing or missing, "as_of": machine.as_of.isoformat()}
            )

    def _row(self, cloud: str, machine: Machine, tenure: Tenure) -> Row:
        line = machine.lines[0]
        region = line.cell("Region")
        vcpus = _number(line.cell("vCPUs"), unknown=0.0)
        info = gpu_info(machine.lines[-1].cell("GpuInfo"))
        count = self._names.count(cloud, machine.name, machine.gpus)
        draw = self._account.draw(cloud, region, tenure.value, Sizes(machine.name, machine.accelerator, count, vcpus))
        return Row(
            cloud=cloud,
            region=region,
            zone=line.cell("AvailabilityZone") or None,
            instance_type=machine.name,
            tenure=tenure.value,
            gpu=self._names.ours(Listed(cloud, machine.name, machine.accelerator, info)),
            gpu_count=count,
            vcpus=vcpus,
            memory_gib=_number(line.cell("MemoryGiB"), unknown=0.0),
            network_gb_per_s=self._account.network_gb_per_s(cloud, machine.name),
            price=math.nan,
            currency=currency_of(cloud, region),
            quota=draw.quota,
            quota_units=draw.units,
            quota_global=draw.over_all,
            as_of="",
            source=SOURCE.name,
            lineage=SOURCE.lineage,
            place="+".join(part.place for part in machine.lines),
        )


def currency_of(cloud: str, region: str) -> str:
    """Return the currency in which a region's prices are listed."""
    for listed in OTHER_CURRENCIES:
        if listed.cloud == cloud and region.startswith(listed.region):
            return listed.currency
    return SOURCE.currency


def _total(machine: Machine, column: str) -> tuple[float, str] | None:
    """Return the sum over a machine's lines and the part without a price; None when no line has one."""
    without = [line.place for line in machine.lines if not line.cell(column)]
    if len(without) == len(machine.lines):
        return None
    price = sum(_number(line.cell(column), unknown=0.0) for line in machine.lines)
    return round(price, 6), f"the {column} of {without[0]}" if without else ""


def _number(text: str, unknown: float) -> float:
    """Read a number; NaN for what is none, so that the gate rejects the row with a reason."""
    try:
        return float(text) if text else unknown
    except ValueError:
        return math.nan
