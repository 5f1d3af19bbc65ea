"""One AWS region's answers become rows, quotas and a Part."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hexcloud.adapters.clouds.aws_answers import ListPrice, Machine, SpotPrice, newest, used
from hexcloud.adapters.clouds.aws_quotas import codes_of, quota_key, quotas_left
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Part, Row, Source

AWS = Source(name="aws", lineage="aws")


@dataclass(frozen=True)
class Said:
    """All that a region said, read."""

    region: str
    zone_ids: Mapping[str, str]
    """The account's name of a zone -> its id."""
    limits: Mapping[str, float]
    """Quota code -> vCPUs."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    offerings: frozenset[tuple[str, str]] = frozenset()
    """(instance type, zone id)."""
    spot: tuple[SpotPrice, ...] = ()
    on_demand: Mapping[str, ListPrice] = field(default_factory=dict)
    reservations: tuple[object, ...] = ()
    """What runs, as answered."""
    scores: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(instance type, zone id) -> spot placement score."""


def part_of(said: Said, as_of: datetime) -> Part:
    """Return the region's Part. Its content hash covers machines and prices: not the time, nor what we run."""
    unsorted = [*_on_demand_rows(said, as_of), *_spot_rows(said, as_of)]
    rows = tuple(sorted(unsorted, key=lambda row: (row.id, row.model_dump_json())))
    quotas = quotas_left(said.region, said.limits, used(said.reservations, said.machines))
    return Part(
        source=AWS.name,
        cloud="aws",
        region=said.region,
        as_of=as_of,
        rows=rows,
        quotas=quotas,
        content=content_hash(rows),
    )


def content_hash(rows: Iterable[Row]) -> str:
    """Return a hash of what rows say, whatever their order and time."""
    said = sorted(row.model_dump_json(exclude={"as_of", "placement_score"}) for row in rows)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def currency_of(region: str) -> str:
    """Return the currency of spot prices, which AWS lists without one: China bills in CNY."""
    return "CNY" if region.startswith("cn-") else AWS.currency


def _on_demand_rows(said: Said, as_of: datetime) -> Iterator[Row]:
    """One row per zone that has the machine, at the region's price."""
    names = {zone: name for name, zone in said.zone_ids.items()}
    for instance_type, zone in said.offerings:
        machine, price = said.machines.get(instance_type), said.on_demand.get(instance_type)
        if machine is not None and price is not None:
            row = _row(said, machine, Tenure.ON_DEMAND, as_of)
            where = {"zone": zone, "zone_name": names.get(zone), "listed": True}
            cost = {"price": price.price, "currency": price.currency, "place": "GetProducts"}
            yield row.model_copy(update={**where, **cost})


def _spot_rows(said: Said, as_of: datetime) -> Iterator[Row]:
    """One row per zone with a spot price, the newest, also where the zone is not listed to have the machine."""
    for spot in newest(said.spot):
        machine = said.machines.get(spot.instance_type)
        if machine is not None:
            pool = (spot.instance_type, spot.zone)
            row = _row(said, machine, Tenure.SPOT, as_of)
            where = {"zone": spot.zone, "zone_name": spot.zone_name, "listed": pool in said.offerings}
            cost = {"price": spot.price, "placement_score": said.scores.get(pool)}
            yield row.model_copy(update={**where, **cost})


def _row(said: Said, machine: Machine, tenure: Tenure, as_of: datetime) -> Row:
    codes = codes_of(machine.instance_type)
    code = None if codes is None else codes.spot if tenure is Tenure.SPOT else codes.on_demand
    return Row(
        cloud="aws",
        region=said.region,
        instance_type=machine.instance_type,
        tenure=tenure.value,
        gpu=machine.gpu,
        gpu_count=machine.gpu_count,
        vcpus=machine.vcpus,
        memory_gib=machine.memory_gib,
        network_gb_per_s=machine.network_gb_per_s,
        price=float("nan"),
        currency=currency_of(said.region),
        quota=quota_key(said.region, code) if code else None,
        quota_units=machine.vcpus if code else 0.0,
        as_of=as_of.isoformat(),
        source=AWS.name,
        lineage=AWS.lineage,
        place="DescribeSpotPriceHistory",
    )
