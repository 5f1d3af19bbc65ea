"""Google's price list, read: what one core, one GiB, one GPU or one GiB of local disk costs per hour, and where.

A SKU is joined to what it bills by the words of its description, and only by an exact match: commitments, reservations,
sole tenants, custom shapes, scheduled and calendar offers all use other words and are never taken for a plain price.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from hexcloud.adapters.clouds.gcp_answers import Sku
from hexcloud.adapters.markets.gcp_facts import GcpFacts
from hexcloud.domain.offer import Tenure

MONTH_H = 730
"""Hours in Google's month: a monthly list price over 730 is its hourly one."""
GIB_PER_GB = 1.073741824
"""A price per decimal GB, times this, is one per GiB."""
SPOT_BEFORE = ("Spot Preemptible ", "Preemptible ")
SPOT_AFTER = (" attached to Spot Preemptible VMs", " attached to Preemptible VMs")
LOCAL_DISK = "SSD backed Local Storage"


class Kind(StrEnum):
    """What a SKU bills."""

    CORE = "core"
    MEMORY = "memory"
    GPU = "gpu"
    DISK = "disk"


PER_HOUR: Mapping[Kind, Mapping[str, float]] = {
    Kind.CORE: {"h": 1.0},
    Kind.GPU: {"h": 1.0},
    Kind.MEMORY: {"GiBy.h": 1.0, "GBy.h": GIB_PER_GB},
    Kind.DISK: {"GiBy.h": 1.0, "GiBy.mo": 1 / MONTH_H, "GBy.mo": GIB_PER_GB / MONTH_H},
}
"""Unit of a price -> factor to a price per hour of one core, GPU or GiB. Any other unit is not understood."""


class Billed(NamedTuple):
    """One thing that is billed: the series of a core or memory, the SKU of a GPU, nothing for a disk."""

    kind: Kind
    name: str = ""


class Price(NamedTuple):
    """Per hour of one core, GPU or GiB."""

    amount: float
    sku: str


Key = tuple[str, Tenure, Billed]


@dataclass(frozen=True)
class PriceList:
    """Prices by (region, tenure, part), and why a SKU that should have given one did not."""

    prices: Mapping[Key, Price] = field(default_factory=dict)
    refusals: Mapping[Key, str] = field(default_factory=dict)

    def price(self, region: str, tenure: Tenure, part: Billed) -> Price | None:
        """Return what a part costs; None when no SKU says so."""
        return self.prices.get((region, tenure, part))

    def refusal(self, region: str, tenure: Tenure, part: Billed) -> str:
        """Return why a part has no price, if there is more to say than that no SKU bills it."""
        return self.refusals.get((region, tenure, part), "")


def price_list(skus: Iterable[Sku], facts: GcpFacts, currency: str) -> PriceList:
    """Index the price list, in one currency. Of two prices for one part the dearer holds: too dear is never a loss."""
    prices: dict[Key, Price] = {}
    refusals: dict[Key, list[str]] = defaultdict(list)
    for sku in skus:
        found = what_is_billed(sku, facts)
        if found is None:
            continue
        tenure, part = found
        amount = _per_hour(sku, part.kind, currency)
        for region in sku.regions:
            key = (region, tenure, part)
            if isinstance(amount, str):
                refusals[key].append(f"SKU {sku.id} {amount}")
            else:
                prices[key] = max(prices.get(key, Price(0.0, "")), Price(amount, sku.id))
    kept = {key: "; ".join(sorted(set(reasons))) for key, reasons in refusals.items() if key not in prices}
    return PriceList(prices=prices, refusals=kept)


def what_is_billed(sku: Sku, facts: GcpFacts) -> tuple[Tenure, Billed] | None:
    """Read a SKU's words; None when it bills nothing of ours.

    A few SKUs call themselves spot under usage type OnDemand; the words are right.
    """
    if sku.usage_type not in ("OnDemand", "Preemptible"):
        return None
    plain = " ".join(sku.description.split()).partition(" running in ")[0].partition(" in ")[0]
    words = _without_spot(plain)
    is_spot = words != plain or sku.usage_type == "Preemptible"
    part = _named(words, facts)
    return (Tenure.SPOT if is_spot else Tenure.ON_DEMAND, part) if part else None


def _without_spot(words: str) -> str:
    for before in SPOT_BEFORE:
        words = words.removeprefix(before)
    for after in SPOT_AFTER:
        words = words.removesuffix(after)
    return words


def _named(words: str, facts: GcpFacts) -> Billed | None:
    if words == LOCAL_DISK:
        return Billed(Kind.DISK)
    if words in facts.gpu_skus:
        return Billed(Kind.GPU, facts.gpu_skus[words])
    for ending, kind in ((" Instance Core", Kind.CORE), (" Instance Ram", Kind.MEMORY)):
        if words.endswith(ending):
            series = words.removesuffix(ending)
            return Billed(kind, facts.series_skus.get(series, series))
    return None


def _per_hour(sku: Sku, kind: Kind, currency: str) -> float | str:
    """Return the price per hour in the first tier that is not free, or why there is none."""
    factor = PER_HOUR[kind].get(sku.unit)
    if factor is None:
        return f"is priced per {sku.unit[:20]!r}, a unit we do not know"
    paid = sorted(tier for tier in sku.tiers if tier.price > 0 and math.isfinite(tier.price))
    if not paid:
        return "has no price over 0"
    if paid[0].currency != currency:
        return f"is priced in {paid[0].currency[:20]!r}, not in {currency}"
    return paid[0].price * factor
