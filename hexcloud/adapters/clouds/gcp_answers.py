"""What Google Cloud answered, as plain values: no foreign type leaves `adapters/clouds/`. Nothing is judged here."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One account limit. Google writes -1 for a limit that does not exist."""

    metric: str
    limit: float
    usage: float


@dataclass(frozen=True, slots=True)
class Region:
    """A region and the account's limits there."""

    name: str
    quotas: tuple[QuotaLine, ...]
    warning: str = ""
    """Why the limits may be incomplete; empty when they are whole."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of a region."""

    name: str
    region: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type as one zone lists it."""

    name: str
    vcpus: float
    memory_mib: float
    accelerators: tuple[tuple[str, float], ...] = ()
    """(accelerator type, how many), built in."""
    local_ssd_partitions: int = 0
    """Bundled local disks, which cannot be left out."""
    description: str = ""
    """Says so when the machine has only a part of a GPU: `1/8 NVIDIA RTX PRO 6000 GPU`."""


class Tier(NamedTuple):
    """From `start` units of usage on, one unit costs `price`."""

    start: float
    price: float
    currency: str


@dataclass(frozen=True, slots=True)
class Sku:
    """One line of the price list. What it bills is said by `description` only."""

    id: str
    description: str
    regions: tuple[str, ...]
    usage_type: str
    """`OnDemand`, `Preemptible`, `Commit1Yr`, ..."""
    unit: str
    """Of the price: `h`, `GiBy.h`, `GiBy.mo`, ..."""
    tiers: tuple[Tier, ...]
