"""Row: one line of a price source as it was read, true or not."""

from enum import StrEnum

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId


class Per(StrEnum):
    """What a price buys."""

    INSTANCE = "instance"
    GPU = "gpu"


class Row(Frozen):
    """One price of one machine. Numbers may be NaN, infinite, zero or negative: the gate decides."""

    cloud: str
    region: str
    zone: str | None = None
    instance_type: str
    tenure: str
    gpu: str
    gpu_count: float
    vcpus: float
    memory_gib: float
    network_gb_per_s: float
    """Network of the whole machine, one way, 1e9 bytes/s."""
    price: float
    """Per hour, in `currency`, for what `per` says."""
    currency: str = "USD"
    per: Per = Per.INSTANCE
    quota: str | None = None
    quota_units: float = 0.0
    as_of: str
    """ISO date or date and time; UTC where it names no zone."""
    source: str

    @property
    def id(self) -> OfferId:
        """The offer's id, spelt also for a tenure nobody knows."""
        return OfferId(f"{self.cloud}/{self.region}/{self.zone or '-'}/{self.instance_type}/{self.tenure}")
