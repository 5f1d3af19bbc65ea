"""Google Cloud for SkyPilot: every machine as a host line and an accelerator line, whose prices sum to its own.

Only the sum is a fact of ours. A host may carry several accelerators and the other way round, so one price of a host
and one of an accelerator must fit every machine they make; a machine whose sum cannot be met is left out, never bent.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hexcloud.adapters.markets.skypilot_tables import DIGITS, Cells, Sales, Words, price_cell, size_cells
from hexcloud.domain.offer import Offer, Tenure

USD_PER_VCPU = {Tenure.ON_DEMAND: 0.0475, Tenure.SPOT: 0.0095}
"""Where a cut begins: about an N1 vCPU with its memory (general knowledge), so that no host alone is free."""
MOST_HOST_SHARE = 0.5
ROUNDING_USD = 2e-6

_Accelerator = tuple[str, int]


class Pair(NamedTuple):
    """A machine as two names with one price, USD per hour."""

    host: str
    vcpus: float
    accelerator: _Accelerator
    """SkyPilot's name and the count."""
    usd_per_hour: float


class Split(NamedTuple):
    """Prices of parts, USD per hour."""

    hosts: dict[str, float]
    accelerators: dict[_Accelerator, float]

    def has(self, pair: Pair) -> bool:
        """Do the two prices of a machine make up its own?"""
        host, accelerator = self.hosts.get(pair.host), self.accelerators.get(pair.accelerator)
        if host is None or accelerator is None:
            return False
        return abs(host + accelerator - pair.usd_per_hour) <= ROUNDING_USD


def split(pairs: Iterable[Pair], tenure: Tenure) -> Split:
    """Cut the prices of all machines of one zone, or of one region where its zones do not differ; cheapest first."""
    cut = Split({}, {})
    for pair in sorted(pairs, key=lambda pair: (pair.usd_per_hour, pair)):
        host, accelerator = cut.hosts.get(pair.host), cut.accelerators.get(pair.accelerator)
        if host is None:
            begin = min(USD_PER_VCPU[tenure] * pair.vcpus, MOST_HOST_SHARE * pair.usd_per_hour)
            host = round(begin if accelerator is None else pair.usd_per_hour - accelerator, DIGITS)
        if accelerator is None:
            accelerator = round(pair.usd_per_hour - host, DIGITS)
        if host > 0 and accelerator > 0:
            cut.hosts.setdefault(pair.host, host)
            cut.accelerators.setdefault(pair.accelerator, accelerator)
    return cut


def gcp_table(sales: Sales, words: Words) -> list[Cells]:
    """Return the lines of `gcp/vms.csv`. On-demand sums are equal in all zones of a region."""
    table: dict[tuple[str, ...], Cells] = {}
    for region in sorted({region for region, _ in sales.machines}):
        machines = [found[0] for (place, _), found in sorted(sales.machines.items()) if place == region]
        on_demand = _cut(machines, sales, None, words)
        for zone in sorted({zone for machine in machines for zone in sales.zones(region, machine.instance_type)}):
            here = [machine for machine in machines if zone in sales.zones(region, machine.instance_type)]
            for cells in _zone(here, zone, (on_demand, _cut(here, sales, zone, words)), words):
                table[region, zone, cells["InstanceType"], cells["AcceleratorName"], cells["AcceleratorCount"]] = cells
    return [table[key] for key in sorted(table)]


class _Cut(NamedTuple):
    pairs: dict[str, Pair]
    """By instance type, only machines with a price."""
    parts: Split


def _cut(machines: Iterable[Offer], sales: Sales, zone: str | None, words: Words) -> _Cut:
    """Cut the spot prices in a zone, or a region's on-demand prices (zone None)."""
    pairs: dict[str, Pair] = {}
    for machine in machines:
        at = (machine.region, machine.instance_type)
        usd_per_hour = sales.on_demand(*at) if zone is None else sales.spot(*at, zone)
        if usd_per_hour is not None:
            host, accelerator = _host(machine), (words.accelerator(machine), machine.gpu_count)
            pairs[machine.instance_type] = Pair(host, machine.vcpus, accelerator, usd_per_hour)
    return _Cut(pairs, split(pairs.values(), Tenure.ON_DEMAND if zone is None else Tenure.SPOT))


def _zone(machines: Iterable[Offer], zone: str, cuts: tuple[_Cut, _Cut], words: Words) -> Iterator[Cells]:
    """Yield the two lines of every machine that is sold in at least one market at a sum that its parts make up."""
    for machine in machines:
        pairs = [(cut.pairs.get(machine.instance_type), cut.parts) for cut in cuts]
        if not any(pair is not None and parts.has(pair) for pair, parts in pairs):
            continue
        host, accelerator = _host(machine), (words.accelerator(machine), machine.gpu_count)
        on_demand, spot = (parts for _, parts in pairs)
        place = {"Region": machine.region, "AvailabilityZone": zone}
        yield {
            "InstanceType": host,
            **size_cells(machine),
            "AcceleratorName": "",
            "AcceleratorCount": "",
            "GpuInfo": "",
            **place,
            "Price": price_cell(on_demand.hosts.get(host)),
            "SpotPrice": price_cell(spot.hosts.get(host)),
        }
        yield {
            "InstanceType": "",
            "vCPUs": "",
            "MemoryGiB": "",
            "AcceleratorName": accelerator[0],
            "AcceleratorCount": f"{accelerator[1]:.1f}",
            "GpuInfo": words.info(machine),
            **place,
            "Price": price_cell(on_demand.accelerators.get(accelerator)),
            "SpotPrice": price_cell(spot.accelerators.get(accelerator)),
        }


def _host(machine: Offer) -> str:
    """`n1-standard-8` of `n1-standard-8+1xT4`; a machine with built-in GPUs is its own host."""
    return machine.instance_type.split("+")[0]
