"""One AWS region's answers become rows, quotas and a Part."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hexcloud.adapters.clouds.aws_answers import ListPrice, Machine, SpotPrice, newest, used
from hexcloud.adapters.clouds.aws_quotas import codes_of, quota_key, quotas_left
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Part, Row, Source

AWS = Source(name="aws", lineage="aws")
PRICES_ACTION = "pricing:GetProducts"
LIMITS_ACTION = "servicequotas:ListServiceQuotas"


@dataclass(frozen=True)
class Said:
    """All that a region said, read."""

    region: str
    zone_ids: Mapping[str, str]
    """The account's name of a zone -> its id."""
    limits: Mapping[str, float] | None
    """Quota code -> vCPUs. None: not allowed to ask."""
    ordinary_zones: frozenset[str] = frozenset()
    """Ids of the zones that are sold at the region's prices on demand."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    offerings: frozenset[tuple[str, str]] = frozenset()
    """(instance type, zone id)."""
    spot: tuple[SpotPrice, ...] = ()
    on_demand: Mapping[str, ListPrice] | None = field(default_factory=dict)
    """Instance type -> the region's price. None: not allowed to ask."""
    reservations: tuple[object, ...] = ()
    """What runs, as answered."""
    scores: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(instance type, zone id) -> spot placement score."""


def part_of(said: Said, as_of: datetime) -> Part:
    """Return the region's Part. Its content hash covers machines and prices: not the time, nor what we run.

    Where prices on demand could not be asked for, every machine has a row without one: it is still listed, so the last
    price stands. Where limits could not be, the part names none, so the last limits stand.
    """
    unsorted = [*_on_demand_rows(said, as_of), *_spot_rows(said, as_of)]
    rows = tuple(sorted(unsorted, key=lambda row: (row.id, row.model_dump_json())))
    quotas = quotas_left(said.region, said.limits or {}, used(said.reservations, said.machines))
    return Part(
        source=AWS.name,
        cloud="aws",
        region=said.region,
        as_of=as_of,
        rows=rows,
        quotas=quotas,
        content=content_hash(rows),
        note=_note(said),
        complete=True,
    )


def _note(said: Said) -> str:
    unread = [
        f"no {what}: this account may not ask for them (IAM permission {action}); the last ones stand"
        for what, action, answer in (
            ("prices on demand", PRICES_ACTION, said.on_demand),
            ("limits", LIMITS_ACTION, said.limits),
        )
        if answer is None
    ]
    return "; ".join(unread)


def content_hash(rows: Iterable[Row]) -> str:
    """Return a hash of what rows say, whatever their order and time."""
    said = sorted(row.model_dump_json(exclude={"as_of", "placement_score", "scored_as_of"}) for row in rows)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def currency_of(region: str) -> str:
    """Return the currency of spot prices, which AWS lists without one: China bills in CNY."""
    return "CNY" if region.startswith("cn-") else AWS.currency


def _on_demand_rows(said: Said, as_of: datetime) -> Iterator[Row]:
    """One row per zone that has the machine, at the region's price: local zones have others, which nobody tells."""
    names = {zone: name for name, zone in said.zone_ids.items()}
    for instance_type, zone in said.offerings:
        machine, cost = said.machines.get(instance_type), _cost(said, instance_type)
        if machine is not None and cost is not None and zone in said.ordinary_zones:
            row = _row(said, machine, Tenure.ON_DEMAND, as_of)
            where = {"zone": zone, "zone_name": names.get(zone), "listed": True}
            yield row.model_copy(update={**where, **cost, "place": "GetProducts"})


def _cost(said: Said, instance_type: str) -> dict[str, object] | None:
    if said.on_demand is None:
        return {"price": math.nan, "missing": f"this account may not ask for it: {PRICES_ACTION}"}
    price = said.on_demand.get(instance_type)
    return None if price is None else {"price": price.price, "currency": price.currency}


def _spot_rows(said: Said, as_of: datetime) -> Iterator[Row]:
    """One row per zone with a spot price, the newest, also where the zone is not listed to have the machine."""
    for spot in newest(said.spot):
        machine = said.machines.get(spot.instance_type)
        if machine is not None:
            pool = (spot.instance_type, spot.zone)
            row = _row(said, machine, Tenure.SPOT, as_of)
            where = {"zone": spot.zone, "zone_name": spot.zone_name, "listed": pool in said.offerings}
            score = said.scores.get(pool)
            scored = {"placement_score": score, "scored_as_of": "" if score is None else as_of.isoformat()}
            yield row.model_copy(update={**where, **scored, "price": spot.price})


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
