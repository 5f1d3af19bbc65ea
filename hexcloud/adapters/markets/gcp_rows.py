"""Machines and prices, put together: one row per zone, machine type and tenure, priced as the sum of all that bills.

A machine of which some part has no price keeps its row, with the part named in `missing`: the gate holds it back and
says why. A market in which neither GPUs nor cores have a price does not exist, and has no row.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from hexcloud.adapters.clouds.gcp_answers import MachineType
from hexcloud.adapters.clouds.gcp_quotas import GLOBAL_KEY
from hexcloud.adapters.markets.gcp_facts import Accelerator, Attachment, GcpFacts
from hexcloud.adapters.markets.gcp_skus import Billed, Kind, PriceList
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

CLOUD = "gcp"
PARTITION_GIB = 375
"""A bundled local disk; those of A4X machines are larger, and their SKUs bill the whole machine."""
_SHARE = re.compile(r"\b1/([1-9][0-9]?)\s")


@dataclass(frozen=True, slots=True)
class ZoneListing:
    """What one zone lists."""

    name: str
    is_up: bool
    machines: tuple[MachineType, ...]
    accelerators: dict[str, int]
    """Accelerator type -> the most that one machine may have."""


@dataclass(frozen=True, slots=True)
class PriceTag:
    """What a region's rows are made with."""

    region: str
    prices: PriceList
    facts: GcpFacts
    currency: str
    at: datetime


class Machine(NamedTuple):
    """A machine as we rent it: its GPUs built in or attached."""

    name: str
    host: MachineType
    accelerator: Accelerator
    gpu_count: float
    network_gb_per_s: float
    tenures: tuple[Tenure, ...]


class Bill(NamedTuple):
    """One line of a machine's bill."""

    quantity: float
    part: Billed
    label: str


def rows_of(zones: Iterable[ZoneListing], tag: PriceTag) -> tuple[Row, ...]:
    """Return the rows of one region, in order."""
    found = (row for zone in zones for machine in _machines(zone, tag.facts) for row in _rows(machine, zone, tag))
    return tuple(sorted(found, key=lambda row: (row.id, row.model_dump_json())))


def content_of(rows: Sequence[Row]) -> str:
    """Return a hash over what was said of machines and prices: not over when, nor over what is left of our limits."""
    said = [row.model_dump_json(exclude={"as_of"}) for row in rows]
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()


def _machines(zone: ZoneListing, facts: GcpFacts) -> Iterator[Machine]:
    """Yield the machines with GPUs of a zone, built in or attached."""
    for host in zone.machines:
        if host.accelerators:
            yield _built_in(host, facts)
        for attachment in facts.attachments:
            most = zone.accelerators.get(attachment.accelerator, 0)
            if host.name == attachment.host and not host.accelerators and attachment.count <= most:
                yield _attached(host, attachment, facts)


def _built_in(host: MachineType, facts: GcpFacts) -> Machine:
    """A machine with a share of a GPU is listed as having one; its description says how much of it."""
    kind, count = host.accelerators[0]
    share = _SHARE.search(host.description[:200])
    fact = facts.machine(host.name)
    tenures = (Tenure.SPOT,) if fact.spot_only else tuple(Tenure)
    of_one = count / int(share.group(1)) if share else float(count)
    return Machine(host.name, host, facts.accelerator(kind), of_one, fact.network_gb_per_s, tenures)


def _attached(host: MachineType, attachment: Attachment, facts: GcpFacts) -> Machine:
    accelerator = facts.accelerator(attachment.accelerator)
    name = f"{host.name}+{attachment.count}x{accelerator.gpu}"
    return Machine(name, host, accelerator, attachment.count, attachment.network_gb_per_s, tuple(Tenure))


def _bills(machine: Machine, facts: GcpFacts) -> list[Bill]:
    """List everything that bills while the machine runs."""
    host, accelerator = machine.host, machine.accelerator
    gpus = Bill(machine.gpu_count, Billed(Kind.GPU, accelerator.skus[0]), f"{machine.gpu_count:g} x {accelerator.type}")
    if accelerator.covers_machine:
        return [gpus]
    series, gib = facts.series_of(host.name), host.memory_mib / 1024
    disk_gib = PARTITION_GIB * max(0, host.local_ssd_partitions)
    bills = [
        gpus,
        Bill(host.vcpus, Billed(Kind.CORE, series), f"{host.vcpus:g} vCPU of {series}"),
        Bill(gib, Billed(Kind.MEMORY, series), f"{gib:g} GiB memory of {series}"),
    ]
    bills += [
        Bill(count, Billed(Kind.GPU, facts.accelerator(kind).skus[0]), f"{count:g} x {kind}")
        for kind, count in host.accelerators[1:]
    ]
    return bills + ([Bill(disk_gib, Billed(Kind.DISK), f"{disk_gib:g} GiB local disk")] if disk_gib else [])


def _rows(machine: Machine, zone: ZoneListing, tag: PriceTag) -> Iterator[Row]:
    """Yield a row per tenure that has a price; where none has, one row that says what is missing."""
    sold = [tenure for tenure in machine.tenures if _is_sold(machine, tenure, tag)]
    for tenure in sold or machine.tenures[:1]:
        yield _row(machine, zone, tenure, tag)


def _is_sold(machine: Machine, tenure: Tenure, tag: PriceTag) -> bool:
    return any(
        tag.prices.price(tag.region, tenure, bill.part)
        for bill in _bills(machine, tag.facts)
        if bill.part.kind in (Kind.GPU, Kind.CORE)
    )


def _row(machine: Machine, zone: ZoneListing, tenure: Tenure, tag: PriceTag) -> Row:
    bills = [(bill, tag.prices.price(tag.region, tenure, bill.part)) for bill in _bills(machine, tag.facts)]
    missing = [_missing(bill, tenure, tag) for bill, price in bills if price is None]
    quota = machine.accelerator.quota_key(tag.region, tenure is Tenure.SPOT)
    return Row(
        cloud=CLOUD,
        region=tag.region,
        zone=zone.name,
        instance_type=machine.name,
        tenure=tenure,
        gpu=machine.accelerator.gpu,
        gpu_count=machine.gpu_count,
        vcpus=machine.host.vcpus,
        memory_gib=machine.host.memory_mib / 1024,
        network_gb_per_s=machine.network_gb_per_s,
        price=sum(bill.quantity * price.amount for bill, price in bills if price),
        currency=tag.currency,
        missing=", ".join(missing),
        listed=zone.is_up and machine.accelerator.type in zone.accelerators,
        quota=quota,
        quota_units=machine.gpu_count if quota else 0.0,
        quota_global=GLOBAL_KEY,
        as_of=tag.at.isoformat(),
        source=CLOUD,
        place="SKU " + " + ".join(price.sku for _, price in bills if price),
    )


def _missing(bill: Bill, tenure: Tenure, tag: PriceTag) -> str:
    why = tag.prices.refusal(tag.region, tenure, bill.part)
    return f"{bill.label} ({why})" if why else bill.label
