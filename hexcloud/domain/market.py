"""Market: all believed offers and links at one moment; Finding and Rejection: what was not believed, or not usable."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from hexcloud.domain.calibration import Calibration
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.offer import Offer, OfferId


class Outcome(StrEnum):
    """What the gate did with a catalog row."""

    ACCEPT = "accept"
    FLAG = "flag"
    QUARANTINE = "quarantine"
    REJECT = "reject"


class Finding(Frozen):
    """A catalog row that was not believed as it stood."""

    source: str
    row: str
    """The row as a reader would look it up: an offer id, or file and line."""
    field: str
    outcome: Outcome
    reason: str
    rule: str = ""
    """Short name to group by: `floor_price`, `host_only`, `step`, ..."""


class Rejection(Frozen):
    """A believed offer that this workload and policy cannot use, or that another offer makes pointless."""

    offer_id: OfferId
    rule: str
    """Short name to group by: `memory`, `region`, `tenure`, `price_age`, `dominated`, ..."""
    reason: str


class LinkScope(StrEnum):
    """How far two machines are apart."""

    ZONE = "zone"
    REGION = "region"
    CONTINENT = "continent"
    WORLD = "world"


class LinkSpec(Frozen):
    """What to expect between two machines before anything is measured. One way, per machine."""

    scope: LinkScope
    gb_per_s: float = Field(gt=0)
    latency_ms: float = Field(ge=0)
    source: str


class EgressPrice(Frozen):
    """What a cloud bills for bytes that leave a machine towards `scope`; between clouds `scope` is `world`."""

    cloud: str
    scope: LinkScope
    usd_per_gb: float = Field(ge=0)
    source: str


class Network(Frozen):
    """Forecast links and egress prices, from `catalogs/links.yaml`."""

    links: tuple[LinkSpec, ...]
    egress: tuple[EgressPrice, ...]


class Quota(Frozen):
    """What is left of one account limit, in the cloud's own unit."""

    key: str
    left: float = Field(ge=0)
    limit: float | None = Field(default=None, ge=0)
    """The whole limit; None when only what is left is known."""
    as_of: datetime | None = None
    """When this much was left; None: nobody knows."""


class Market(Frozen):
    """Everything the planner may believe at one moment. Offers are sorted by id and unique."""

    as_of: datetime
    offers: tuple[Offer, ...]
    gpus: dict[str, GpuSpec]
    network: Network
    calibration: Calibration
    quotas: tuple[Quota, ...] = ()
    findings: tuple[Finding, ...] = ()

    def offer(self, offer_id: str) -> Offer | None:
        """Return the offer with this id, or None when the market no longer lists it."""
        return next((offer for offer in self.offers if offer.id == offer_id), None)
