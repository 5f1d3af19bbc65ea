"""Row, Part, Belief: a price as listed, one source's answer for a region, and what the gate made of a row."""

import math
from datetime import datetime
from enum import StrEnum

from pydantic import ConfigDict

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.offer import OfferId


class Per(StrEnum):
    """What a price buys."""

    INSTANCE = "instance"
    GPU = "gpu"


class Source(Frozen):
    """Who lists prices, and in which unit: declared once per source, never guessed from a number."""

    name: str
    """`aws`, `gcp`, `skypilot-v8`, `gpu-pricing-tracker`, ..."""
    lineage: str
    """Who read the prices off the cloud. Sources of one lineage repeat each other's mistakes and vouch for nothing."""
    per: Per = Per.INSTANCE
    currency: str = "USD"


class Row(Frozen):
    """One price of one machine. Numbers may be NaN, infinite, zero or negative: the gate decides."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    cloud: str
    region: str
    zone: str | None = None
    """As the source spells it; AWS: the account-neutral zone id, such as `use1-az4`."""
    zone_name: str | None = None
    """AWS: the account's own name of the zone, such as `us-east-1a`."""
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
    missing: str = ""
    """A part of the machine that bills and has no price here, such as `8 x A100`; then `price` is too low."""
    listed: bool | None = None
    """Does the cloud's own list of zones have this machine type here? None: nobody asked."""
    placement_score: int | None = None
    """AWS spot placement score, 1 to 10."""
    scored_as_of: str = ""
    """When the score was given, ISO date and time."""
    quota: str | None = None
    quota_units: float = 0.0
    quota_global: str | None = None
    """Key of the account quota over all regions that the GPUs draw on too."""
    as_of: str
    """ISO date or date and time at which the price was true; UTC where it names no zone."""
    source: str
    lineage: str = ""
    """Empty: the source itself."""
    place: str = ""
    """Where a reader finds the row: `aws.csv:17`, `DescribeSpotPriceHistory`."""

    @property
    def list_price(self) -> float:
        """Price of the whole machine for an hour, in `currency`."""
        return self.price * self.gpu_count if self.per is Per.GPU else self.price

    @property
    def id(self) -> OfferId:
        """The offer's id, spelt also for a tenure nobody knows."""
        return OfferId(f"{self.cloud}/{self.region}/{self.zone or '-'}/{self.instance_type}/{self.tenure}")


class Part(Frozen):
    """What one source answered for one region of one cloud. With a problem, the last good answer stands."""

    source: str
    cloud: str
    region: str
    """`*` for a source that answers for all regions at once, or fails before it knows them."""
    as_of: datetime
    rows: tuple[Row, ...] = ()
    quotas: tuple[Quota, ...] = ()
    problem: str = ""
    """One line for people: what failed and what to do about it. Empty: none."""
    short_prices: int = 0
    """With the problem of being half-written: how many prices it had."""
    content: str = ""
    """Hash of what the source said (not of when): a second snapshot confirms a step only if this differs."""
    note: str = ""
    """One line for people on what could not be read beside what was; empty: nothing."""
    complete: bool = False
    """Is it all that the cloud itself offers in the region? Then what it does not list is not for sale there."""

    @property
    def priced(self) -> int:
        """How many of its rows name a price that can be paid."""
        return sum(1 for row in self.rows if 0 < row.price < math.inf)


class Belief(Frozen):
    """One row and its one outcome."""

    row: Row
    outcome: Outcome
    rule: str = ""
    """Short name to group by: `floor_price`, `host_only`, `step`, ...; empty when accepted."""
    field: str = ""
    reason: str = ""
    """For people; empty when accepted."""
    usd_per_unit: float = 1.0
    """USD for one unit of the row's currency, as used; 1 where the currency is not known."""

    @property
    def is_believed(self) -> bool:
        """May it become an offer?"""
        return self.outcome in (Outcome.ACCEPT, Outcome.FLAG)
