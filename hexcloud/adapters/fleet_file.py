"""fleet_file: machines that a user already has, and links measured between them, as `plan --fleet FILE` lists them."""

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, RootModel

from hexcloud.adapters.files import load_calibration, load_gpus, load_network, load_yaml, suggest
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import MeasuredLink
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import EgressPrice, LinkScope, Market
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.plan import SlotName

OWN_USD_PER_GPU_HOUR = 0.01
"""Nominal price of a machine that costs nothing extra: positive, so that a plan still prefers fewer machines."""
OWN_CLOUD = "own"
OWN = "the user's own machines"
NOMINAL = f"{OWN}, a nominal price"
_NAME = r"^[A-Za-z0-9._-]+$"
_ONE_OR_ALL = r"^[A-Za-z0-9._-]+(#[1-9][0-9]*)?$"


class Machine(Frozen):
    """A machine (or `count` equal ones) that the user already has, as `--fleet FILE` lists it."""

    name: str = Field(pattern=_NAME)
    gpu: str
    gpu_count: int = Field(gt=0)
    network_gb_per_s: float = Field(gt=0)
    """One way, 1e9 bytes/s."""
    zone: str = Field(default="home", pattern=_NAME)
    """Machines of one zone share a fast network."""
    region: str = Field(default="home", pattern=_NAME)
    """Machines of one region are lost together, if at all."""
    count: int = Field(default=1, gt=0)
    usd_per_hour: float | None = Field(default=None, gt=0)
    """What it costs to use; None: nothing extra."""
    vcpus: float | None = Field(default=None, gt=0)
    """None: eight per GPU."""
    memory_gib: float | None = Field(default=None, gt=0)
    """None: 64 per GPU."""


class Link(Frozen):
    """What was measured between two machines, one way. A name means all machines of it, `name#2` the second one."""

    source: str = Field(pattern=_ONE_OR_ALL)
    target: str = Field(pattern=_ONE_OR_ALL)
    gb_per_s: float = Field(gt=0)
    """1e9 bytes/s."""
    latency_ms: float = Field(default=0.0, ge=0)


class _Machines(RootModel[tuple[Machine, ...]]):
    """A list of machines."""


class _Described(Frozen):
    """Machines and links."""

    machines: tuple[Machine, ...]
    links: tuple[Link, ...] = ()


class _Shape(RootModel[list[Any] | dict[str, Any]]):
    """Either of the two."""


class OwnFleet(NamedTuple):
    """What a fleet file says."""

    market: Market
    """A market in which only the user's machines can be had."""
    links: tuple[MeasuredLink, ...]
    """Between machines, by `name#1`, `name#2` ..."""


def load_fleet(path: Path | str) -> OwnFleet:
    """Read the user's own machines, and the links between them where any were measured. Raises ConfigError.

    The file is a list of machines, each with name, gpu, gpu_count and network_gb_per_s, and optionally zone, region,
    count, usd_per_hour, vcpus and memory_gib; or it has that list as `machines` and, as `links`, a list of source,
    target, gb_per_s and latency_ms.
    """
    gpus = load_gpus()
    is_list = isinstance(load_yaml(path, _Shape).root, list)
    given = _Described(machines=load_yaml(path, _Machines).root) if is_list else load_yaml(path, _Described)
    _check_machines(f"{path}: " + ("" if is_list else "machines"), given.machines, gpus)
    now = datetime.now(UTC)
    network = load_network()
    free = tuple(EgressPrice(cloud=OWN_CLOUD, scope=scope, usd_per_gb=0, source=OWN) for scope in LinkScope)
    market = Market(
        as_of=now,
        offers=tuple(sorted((_own_offer(machine, now) for machine in given.machines), key=lambda offer: offer.id)),
        gpus=gpus,
        network=network.model_copy(update={"egress": network.egress + free}),
        calibration=load_calibration(),
    )
    counts = {machine.name: machine.count for machine in given.machines}
    links = (
        one for index, link in enumerate(given.links) for one in _measured(f"{path}: links[{index}]", link, counts)
    )
    return OwnFleet(market, tuple(links))


def unpriced(market: Market) -> tuple[str, ...]:
    """Return the names of machines of which nobody said what they cost."""
    return tuple(offer.instance_type for offer in market.offers if offer.source == NOMINAL)


def _measured(at: str, link: Link, counts: dict[str, int]) -> list[MeasuredLink]:
    """Return a measured link for each pair of machines that are meant."""
    pairs = product(_meant(f"{at}.source", link.source, counts), _meant(f"{at}.target", link.target, counts))
    found = [
        MeasuredLink(source=one, target=other, gb_per_s=link.gb_per_s, latency_ms=link.latency_ms)
        for one, other in pairs
        if one != other
    ]
    if not found:
        raise ConfigError(f"{at} leads from {link.source} to itself; name two machines")
    return found


def _meant(at: str, name: str, counts: dict[str, int]) -> list[SlotName]:
    kind, _, number = name.partition("#")
    if kind not in counts:
        raise ConfigError(f"{at} {kind!r} is none of the machines{suggest(kind, counts)}")
    if number and int(number) > counts[kind]:
        raise ConfigError(f"{at} {name!r}: there are only {counts[kind]} of {kind} (its count)")
    return [SlotName(f"{kind}#{one}") for one in ([int(number)] if number else range(1, counts[kind] + 1))]


def _check_machines(at: str, machines: tuple[Machine, ...], gpus: dict[str, GpuSpec]) -> None:
    if not machines:
        raise ConfigError(f"{at.rstrip(': ')}: lists no machine")
    seen: set[str] = set()
    for index, machine in enumerate(machines):
        if machine.gpu not in gpus:
            raise ConfigError(f"{at}[{index}].gpu {machine.gpu!r} is unknown{suggest(machine.gpu, gpus)}")
        if machine.name in seen:
            raise ConfigError(f"{at}[{index}].name {machine.name!r} is given twice; use count for equal machines")
        seen.add(machine.name)


def _own_offer(machine: Machine, now: datetime) -> Offer:
    return Offer(
        id=offer_id(OWN_CLOUD, machine.region, machine.zone, machine.name, Tenure.ON_DEMAND),
        cloud=OWN_CLOUD,
        region=machine.region,
        zone=machine.zone,
        instance_type=machine.name,
        tenure=Tenure.ON_DEMAND,
        gpu=machine.gpu,
        gpu_count=machine.gpu_count,
        vcpus=machine.vcpus or 8 * machine.gpu_count,
        memory_gib=machine.memory_gib or 64 * machine.gpu_count,
        network_gb_per_s=machine.network_gb_per_s,
        usd_per_hour=machine.usd_per_hour or OWN_USD_PER_GPU_HOUR * machine.gpu_count,
        stock=machine.count,
        as_of=now,
        source=NOMINAL if machine.usd_per_hour is None else OWN,
    )
