"""The shapes of the smaller files in `catalogs/`: what things usually cost, odd machines, rates, names of GPUs."""

from datetime import date

from pydantic import Field, FiniteFloat

from hexcloud.domain.calibration import Factor
from hexcloud.domain.frozen import Frozen


class UsualPrice(Frozen):
    """What one accelerator usually costs on demand."""

    gpu: str
    usd_per_hour: FiniteFloat = Field(gt=0)
    clouds: int = Field(gt=0)
    """Of how many clouds this is the median."""
    as_of: date
    source: str


class UsualCatalog(Frozen):
    """`catalogs/usual.yaml`."""

    as_of: date
    source: str
    prices: tuple[UsualPrice, ...]


class OddCount(Frozen):
    """A machine that has neither 1, 2, 4, 8 nor 16 accelerators, and really so."""

    instance_type: str
    count: int = Field(gt=0)
    source: str


class OddCountCatalog(Frozen):
    """`catalogs/odd_counts.yaml`."""

    as_of: date
    source: str
    machines: tuple[OddCount, ...]


class Rate(Frozen):
    """What one unit of a currency is worth."""

    currency: str = Field(pattern=r"^[A-Z]{3}$")
    usd_per_unit: FiniteFloat = Field(gt=0)
    source: str


class RateCatalog(Frozen):
    """`catalogs/fx.yaml`."""

    as_of: date
    source: str
    rates: tuple[Rate, ...]


class NameRule(Frozen):
    """What SkyPilot's name of an accelerator means. All texts but `gpu` may hold `*` and `?`; case does not matter."""

    accelerator: str
    clouds: tuple[str, ...] = ()
    """Empty: any."""
    instance_type: str = "*"
    info: str = "*"
    """The name inside GpuInfo; empty where it has none."""
    memory_gib: tuple[FiniteFloat, FiniteFloat] | None = None
    """Least and most memory of one GPU; a rule with it never fits a line that does not say."""
    gpu: str


class GpuShare(Frozen):
    """A machine that gets only a part of its GPU, though its catalog line counts a whole one."""

    cloud: str
    instance_type: str
    gpus: FiniteFloat = Field(gt=0)


class SkyName(Frozen):
    """How SkyPilot spells a GPU of ours on some clouds, where the spelling differs."""

    gpu: str
    clouds: tuple[str, ...] = ()
    """Empty: any."""
    instance_type: str = "*"
    accelerator: str


class GpuNameCatalog(Frozen):
    """`catalogs/gpu_names.yaml`. The first rule that fits wins; a name that no rule knows is kept."""

    as_of: date
    source: str
    rules: tuple[NameRule, ...]
    shares: tuple[GpuShare, ...]
    back: tuple[SkyName, ...]


class FactorFile(Frozen):
    """What `hexcloud profile` measured: the table `factors` of `catalogs/calibration.yaml`, in a file of its own."""

    factors: tuple[Factor, ...] = ()
