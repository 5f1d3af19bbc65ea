"""What AWS's answers mean: machines, zones, prices, limits. What is missing or of a wrong type is NaN or left out.

Nothing here believes or doubts a price; `appraise` does.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from hexcloud.adapters.clouds.aws_quotas import ALL_CODES, codes_of

GPU_NAMES: dict[tuple[str, int], str] = {
    ("A100", 40960): "A100-40GB",
    ("A100", 81920): "A100-80GB",
    ("V100", 16384): "V100",
    ("V100", 32768): "V100-32GB",
    ("RTX PRO Server 6000", 98304): "RTX-PRO-6000",
}
"""(AWS's name, MiB of one) -> ours, where the two differ; any other accelerator keeps AWS's name."""
MIB_PER_GIB = 1024
GBIT_PER_GB = 8
_GIGABIT = re.compile(r"(?:(\d{1,3})x )?(\d{1,5}(?:\.\d{1,5})?) Gigabit")


class Machine(NamedTuple):
    """Facts of an instance type."""

    instance_type: str
    gpu: str
    gpu_count: float
    """A share for a machine with a part of a GPU."""
    vcpus: float
    memory_gib: float
    network_gb_per_s: float
    is_spot: bool
    """Is it sold as spot at all?"""


class SpotPrice(NamedTuple):
    """One spot price from a moment on."""

    instance_type: str
    zone: str
    """Zone id, or the account's name where AWS gives no id."""
    zone_name: str | None
    at_s: float
    """Seconds since the epoch."""
    price: float
    """Per hour and machine."""


class ListPrice(NamedTuple):
    """One on-demand price, per hour and machine."""

    price: float
    currency: str


def machines(answers: Iterable[object]) -> dict[str, Machine]:
    """Read InstanceTypes: those with accelerators, by instance type."""
    read = (_machine(answer) for answer in answers)
    return {machine.instance_type: machine for machine in read if machine is not None}


def _machine(answer: object) -> Machine | None:
    instance_type = text(answer, "InstanceType")
    devices = [*items(answer, "GpuInfo", "Gpus"), *items(answer, "NeuronInfo", "NeuronDevices")]
    names = sorted({_gpu_name(device) for device in devices} - {""})
    if not instance_type or not names:
        return None
    return Machine(
        instance_type=instance_type,
        gpu="+".join(names),
        gpu_count=sum(_count(device) for device in devices),
        vcpus=number(answer, "VCpuInfo", "DefaultVCpus"),
        memory_gib=number(answer, "MemoryInfo", "SizeInMiB") / MIB_PER_GIB,
        network_gb_per_s=_network_gb_per_s(answer),
        is_spot="spot" in items(answer, "SupportedUsageClasses"),
    )


def _gpu_name(device: object) -> str:
    name = text(device, "Name")
    mib = number(device, "MemoryInfo", "SizeInMiB")
    return GPU_NAMES.get((name, int(mib)), name) if math.isfinite(mib) else name


def _count(device: object) -> float:
    """Whole devices, or the share of one that a machine with a part of a GPU gets."""
    count = number(device, "Count")
    share = number(device, "GpuPartitionSize") * number(device, "LogicalGpuCount")
    return share if count == 0 and math.isfinite(share) else count


def _network_gb_per_s(answer: object) -> float:
    """Sum of the cards' baselines; else the figure in words, which is a burst where it says `Up to`."""
    cards = [number(card, "BaselineBandwidthInGbps") for card in items(answer, "NetworkInfo", "NetworkCards")]
    if cards and all(math.isfinite(card) for card in cards):
        return sum(cards) / GBIT_PER_GB
    words = _GIGABIT.search(text(answer, "NetworkInfo", "NetworkPerformance"))
    return int(words[1] or 1) * float(words[2]) / GBIT_PER_GB if words else math.nan


def zones(answers: Iterable[object]) -> dict[str, str]:
    """Read AvailabilityZones: the account's name of each -> zone id."""
    read = {text(answer, "ZoneName"): text(answer, "ZoneId") for answer in answers}
    return {name: zone for name, zone in read.items() if name and zone}


def ordinary_zones(answers: Iterable[object]) -> frozenset[str]:
    """Read AvailabilityZones: the ids of those that are sold at the region's prices, unlike local and edge zones."""
    ordinary = (answer for answer in answers if text(answer, "ZoneType") == "availability-zone")
    return frozenset(text(answer, "ZoneId") for answer in ordinary) - {""}


def offerings(answers: Iterable[object]) -> frozenset[tuple[str, str]]:
    """Read InstanceTypeOfferings: (instance type, zone id)."""
    read = {(text(answer, "InstanceType"), text(answer, "Location")) for answer in answers}
    return frozenset(pair for pair in read if all(pair))


def spot_prices(answers: Iterable[object], zone_ids: Mapping[str, str]) -> list[SpotPrice]:
    """Read SpotPriceHistory, Linux only, in AWS's order; `zone_ids` by the account's names."""
    read = (_spot_price(answer, zone_ids) for answer in answers)
    return [price for price in read if price is not None]


def _spot_price(answer: object, zone_ids: Mapping[str, str]) -> SpotPrice | None:
    instance_type, zone_name = text(answer, "InstanceType"), text(answer, "AvailabilityZone")
    zone = text(answer, "AvailabilityZoneId") or zone_ids.get(zone_name) or zone_name
    if not instance_type or not zone or not text(answer, "ProductDescription").startswith("Linux/UNIX"):
        return None
    return SpotPrice(instance_type, zone, zone_name or None, _at_s(answer), number(answer, "SpotPrice"))


def _at_s(answer: object) -> float:
    at_s = moment_s(answer, "Timestamp")
    return math.nan if at_s is None else at_s


def moment_s(answer: object, *path: str) -> float | None:
    """Return a moment, seconds since the epoch; None when there is none."""
    at = dig(answer, *path)
    if not isinstance(at, datetime):
        return None
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError, OSError):
        return None


def newest(prices: Iterable[SpotPrice]) -> list[SpotPrice]:
    """Keep the last price of each pool, in whatever order they come; a price without a time is the oldest."""
    last: dict[tuple[str, str], SpotPrice] = {}
    for price in prices:
        pool = (price.instance_type, price.zone)
        if pool not in last or _age_key(price) > _age_key(last[pool]):
            last[pool] = price
    return list(last.values())


def _age_key(price: SpotPrice) -> tuple[float, bool, float]:
    return (-math.inf if math.isnan(price.at_s) else price.at_s, *_cost_key(price))


def _cost_key(price: SpotPrice | ListPrice) -> tuple[bool, float]:
    """Where two prices contradict each other the dearer one counts: a plan must not be cheaper than the bill."""
    return (False, 0.0) if math.isnan(price.price) else (True, price.price)


def on_demand_prices(answers: Iterable[object]) -> dict[str, ListPrice]:
    """Read a PriceList: Linux, shared tenancy, nothing reserved or preinstalled; of several prices the dearest."""
    found: dict[str, ListPrice] = {}
    for answer in answers:
        product = _loaded(answer)
        instance_type = text(product, "product", "attributes", "instanceType")
        if not instance_type or not _is_plain(product):
            continue
        for price in _hourly(product):
            if instance_type not in found or _cost_key(price) > _cost_key(found[instance_type]):
                found[instance_type] = price
    return found


def _loaded(answer: object) -> object:
    """The SDK passes each product on as a JSON text."""
    if not isinstance(answer, str | bytes):
        return answer
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


def _is_plain(product: object) -> bool:
    """Is this what a Linux machine costs by the hour, and not a reservation, a licence or a dedicated host?"""
    plain = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    said = {name: text(product, "product", "attributes", name) for name in plain}
    return all(said[name] in ("", wanted) for name, wanted in plain.items())


def _hourly(product: object) -> Iterator[ListPrice]:
    for term in values(product, "terms", "OnDemand"):
        for dimension in values(term, "priceDimensions"):
            if text(dimension, "unit").lower() not in ("hrs", "hours"):
                continue
            per_unit = dig(dimension, "pricePerUnit")
            for currency in per_unit if isinstance(per_unit, Mapping) else ():
                yield ListPrice(number(dimension, "pricePerUnit", currency), str(currency))


def limits(answers: Iterable[object]) -> dict[str, float]:
    """Read Quotas: code -> vCPUs, of families with accelerators. A limit that is no number is left out."""
    read = {text(answer, "QuotaCode"): number(answer, "Value") for answer in answers}
    return {code: limit for code, limit in read.items() if code in ALL_CODES and math.isfinite(limit) and limit >= 0}


def used(answers: Iterable[object], known: Mapping[str, Machine]) -> Iterator[tuple[str, float]]:
    """Read Reservations: (quota code, vCPUs) of each machine. Limits count a type's vCPUs, switched off or not."""
    for reservation in answers:
        for instance in items(reservation, "Instances"):
            machine = known.get(text(instance, "InstanceType"))
            codes = codes_of(machine.instance_type) if machine else None
            if machine and codes and math.isfinite(machine.vcpus):
                yield (codes.spot if text(instance, "InstanceLifecycle") == "spot" else codes.on_demand, machine.vcpus)


def placement_scores(answers: Iterable[object]) -> dict[str, int]:
    """Read SpotPlacementScores: zone id -> 1 to 10."""
    read = {text(answer, "AvailabilityZoneId"): number(answer, "Score") for answer in answers}
    return {zone: int(score) for zone, score in read.items() if zone and 1 <= score <= 10}


def dig(answer: object, *path: str) -> object:
    """Follow keys down; None where there is nothing or something else than expected."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    return answer


def text(answer: object, *path: str) -> str:
    """Return a text, empty where there is none."""
    found = dig(answer, *path)
    return found if isinstance(found, str) else ""


def number(answer: object, *path: str) -> float:
    """Return a number, NaN where there is none."""
    found = dig(answer, *path)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return math.nan
    try:
        return float(found)
    except (ValueError, OverflowError):
        return math.nan


def items(answer: object, *path: str) -> list[object]:
    """Return a list, empty where there is none."""
    found = dig(answer, *path)
    return found if isinstance(found, list) else []


def values(answer: object, *path: str) -> list[object]:
    """Return what a mapping holds, nothing where there is none."""
    found = dig(answer, *path)
    return list(found.values()) if isinstance(found, Mapping) else []
