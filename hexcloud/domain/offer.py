"""Offer: one thing that can be rented."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, NewType

from pydantic import Field, FiniteFloat

from hexcloud.domain.frozen import Frozen

OfferId = NewType("OfferId", str)
"""`cloud/region/zone/instance_type/tenure`; zone is `-` where the cloud has none."""


class Tenure(StrEnum):
    """How long the provider lets us keep the machine."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


def offer_id(cloud: str, region: str, zone: str | None, instance_type: str, tenure: Tenure) -> OfferId:
    """Return the one spelling of an offer's id."""
    return OfferId(f"{cloud}/{region}/{zone or '-'}/{instance_type}/{tenure.value}")


class Place(NamedTuple):
    """Where a machine stands."""

    cloud: str
    region: str
    zone: str
    """`-` where the cloud has none."""


def place_of(offer_id: OfferId) -> Place:
    """Return the place that an offer's id names, also when no market lists the offer any more."""
    cloud, region, zone, _ = offer_id.split("/", 3)
    return Place(cloud, region, zone)


class Draw(NamedTuple):
    """What one machine takes of one account quota."""

    quota: str
    """Key of a Quota."""
    units: float
    """In the cloud's own unit."""


class Offer(Frozen):
    """A whole machine at a price. A price that is not finite and positive cannot be built."""

    id: OfferId
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    tenure: Tenure
    gpu: str
    """Name of a GpuSpec."""
    gpu_count: int = Field(gt=0)
    vcpus: float = Field(ge=0)
    memory_gib: float = Field(ge=0)
    network_gb_per_s: float = Field(gt=0)
    """Network of the whole machine, one way, 1e9 bytes/s."""
    usd_per_hour: FiniteFloat = Field(gt=0)
    """Everything that bills while the machine runs, whole machine."""
    currency: str = "USD"
    """Of the list price."""
    usd_per_unit: FiniteFloat = Field(default=1.0, gt=0)
    """USD for one unit of `currency`, as converted. A new rate is no price shift: compare `list_price`."""
    zone_name: str | None = None
    """AWS: the account's own name of the zone, such as `us-east-1a`."""
    stock: int | None = Field(default=None, ge=0)
    """How many can be had now; None when nobody knows."""
    proven: bool = True
    """False when the listing looks like capacity that does not exist (floor price); see `appraise`."""
    interruptions_per_hour: float | None = Field(default=None, ge=0)
    """How often a machine of this pool is taken away, learned from our own fleet; None: the calibration's prior."""
    startup_s: float | None = Field(default=None, ge=0)
    """From the provider's yes to the first heartbeat, learned; None: the calibration's prior."""
    placement_score: int | None = Field(default=None, ge=1, le=10)
    """AWS spot placement score of the place, 10 is best."""
    quota: str | None = None
    """Key of the account quota this machine draws on."""
    quota_units: float = 0.0
    """How much of that quota one machine takes, in the cloud's own unit."""
    quota_global: str | None = None
    """Key of the account quota over all regions that this machine's GPUs draw on too."""
    as_of: datetime
    """When the price was true."""
    source: str

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of one GPU for an hour."""
        return self.usd_per_hour / self.gpu_count

    @property
    def list_price(self) -> float:
        """Price of the whole machine for an hour in its own currency."""
        return self.usd_per_hour / self.usd_per_unit

    @property
    def is_live(self) -> bool:
        """Is the price the cloud's own word, which a refresh can renew? Such a source has the name of its cloud."""
        return self.source == self.cloud

    def draws(self) -> tuple[Draw, ...]:
        """Return what one machine takes of the account's quotas."""
        regional = () if self.quota is None else (Draw(self.quota, self.quota_units),)
        return regional if self.quota_global is None else (*regional, Draw(self.quota_global, float(self.gpu_count)))

    @property
    def domain(self) -> str:
        """The failure domain: zone and GPU family for spot, else the region."""
        if self.tenure is Tenure.SPOT:
            return f"{self.cloud}/{self.region}/{self.zone or '-'}/{self.gpu}"
        return f"{self.cloud}/{self.region}"
