"""Gate: a price row becomes an offer, an offer under suspicion, or nothing; each doubt is a Finding.

Reject (cannot be true): price not positive and finite, unknown currency, GPU, tenure or date, an impossible GPU count,
spot dearer than the machine's own on-demand price. Quarantine (true only if somebody confirms it): GPU counts that no
machine has, prices far below what the GPU costs elsewhere. Flag (true, but probably nothing to buy): spot at the
floor discount or at the full price. Too dear is never an error: whoever is dear is simply not bought.

Each market stands alone: a machine may have a spot price without an on-demand price and the reverse. A row that is
refused never changes what is believed of the rest, the order of rows does not matter, and gating twice changes nothing.
Thresholds: tried on 3,935 GPU rows of thirteen clouds in public catalogs of 2024 and 2026.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from hexcloud.appraise.row import Row
from hexcloud.appraise.units import moment, usd_per_hour
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import Finding, Outcome
from hexcloud.domain.offer import Offer, Tenure

GPU_COUNTS = frozenset({1, 2, 4, 8, 16})
"""GPUs that rented machines have; 12 and 6 were typing errors for 8 in a real catalog."""
OVER_ON_DEMAND = 1.001
"""Spot above this multiple of on-demand is an error; the margin is for rounding in price lists."""
FLOOR_SHARE = 0.12
"""Clouds list spot at 9 to 10 % of on-demand where there is no hardware to sell."""
CHEAP_SHARE = 0.1
"""An on-demand price per GPU under this share of the median over clouds waits for a second source."""
CHEAP_SPOT_SHARE = 0.01
"""The same for spot: a tenth of the floor discount on top."""


class Believed(Frozen):
    """What the gate lets through (ids may repeat, see `merge`) and what it has to say about the rows."""

    offers: tuple[Offer, ...]
    findings: tuple[Finding, ...]


class _Doubt(Frozen):
    field: str
    outcome: Outcome
    reason: str


class _Prices(Frozen):
    """What on-demand rows that are not suspect themselves say about a fair price, USD/h."""

    machine: dict[tuple[str, str, str], float]
    """(cloud, region, instance type) -> whole machine."""
    dearest: dict[tuple[str, str, str], float]
    """(cloud, region, gpu) -> per GPU; under region `` the dearest of the whole cloud."""
    gpu: dict[str, float]
    """gpu -> median over clouds of each cloud's median, per GPU."""


def gate(rows: Iterable[Row], gpus: Mapping[str, GpuSpec]) -> Believed:
    """Judge every row against itself and against the rest."""
    offers: list[Offer] = []
    findings: list[Finding] = []
    for row in rows:
        doubt = _flaw(row, gpus)
        if doubt is None:
            offers.append(_offer(row))
        else:
            findings.append(_finding(row.id, row.source, doubt))
    prices = _fair_prices(offers)
    believed: list[Offer] = []
    for offer in offers:
        doubt = _suspicion(offer, prices)
        if doubt is not None:
            findings.append(_finding(offer.id, offer.source, doubt))
        if doubt is None or doubt.outcome is Outcome.FLAG:
            believed.append(offer.model_copy(update={"proven": False}) if doubt else offer)
    return Believed(
        offers=tuple(sorted(believed, key=lambda offer: (offer.id, offer.model_dump_json()))),
        findings=tuple(sorted(findings, key=lambda finding: (finding.row, finding.model_dump_json()))),
    )


def _flaw(row: Row, gpus: Mapping[str, GpuSpec]) -> _Doubt | None:
    """What is wrong with a row on its face."""
    price = usd_per_hour(row)
    if price is None:
        return _reject("currency", f"price is in {row.currency}, not in USD")
    if not math.isfinite(price) or price <= 0:
        return _reject("price", f"price {price:g} is not a positive number")
    if row.gpu not in gpus:
        return _reject("gpu", f"GPU {row.gpu!r} is not in the GPU catalog")
    if row.tenure not in tuple(Tenure):
        return _reject("tenure", f"tenure {row.tenure!r} is neither on_demand nor spot")
    if moment(row.as_of) is None:
        return _reject("as_of", f"as_of {row.as_of!r} is not a date")
    return _count_flaw(row) or _size_flaw(row)


def _count_flaw(row: Row) -> _Doubt | None:
    if not math.isfinite(row.gpu_count) or row.gpu_count < 1 or row.gpu_count != int(row.gpu_count):
        return _reject("gpu_count", f"{row.gpu_count:g} GPUs is impossible")
    if row.gpu_count not in GPU_COUNTS:
        reason = f"{row.gpu_count:g} GPUs; machines have {', '.join(map(str, sorted(GPU_COUNTS)))}"
        return _Doubt(field="gpu_count", outcome=Outcome.QUARANTINE, reason=reason)
    return None


def _size_flaw(row: Row) -> _Doubt | None:
    for field in ("vcpus", "memory_gib", "network_gb_per_s", "quota_units"):
        size: float = getattr(row, field)
        if not math.isfinite(size) or size < 0:
            return _reject(field, f"{field} {size:g} is not a size")
    return None if row.network_gb_per_s > 0 else _reject("network_gb_per_s", "a machine without a network")


def _fair_prices(offers: Iterable[Offer]) -> _Prices:
    by_gpu: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        if offer.tenure is Tenure.ON_DEMAND:
            by_gpu[offer.gpu].append(offer)
    machine: dict[tuple[str, str, str], float] = {}
    dearest: dict[tuple[str, str, str], float] = {}
    gpu: dict[str, float] = {}
    for name, listed in by_gpu.items():
        plausible = _plausible(listed)
        gpu[name] = _median_over_clouds(plausible)
        for offer in plausible:
            here = (offer.cloud, offer.region, offer.instance_type)
            machine[here] = max(offer.usd_per_hour, machine.get(here, 0.0))
            for around in ((offer.cloud, offer.region, name), (offer.cloud, "", name)):
                dearest[around] = max(offer.usd_per_gpu_hour, dearest.get(around, 0.0))
    return _Prices(machine=machine, dearest=dearest, gpu=gpu)


def _plausible(offers: list[Offer]) -> list[Offer]:
    """Drop what is far under the median until nothing is: so absurd rows never pull the median that judges others."""
    while True:
        least = CHEAP_SHARE * _median_over_clouds(offers)
        kept = [offer for offer in offers if offer.usd_per_gpu_hour >= least]
        if len(kept) == len(offers):
            return kept
        offers = kept


def _median_over_clouds(offers: Iterable[Offer]) -> float:
    """Median of the clouds' medians per GPU: a cloud with many zones has one voice.

    When only two clouds speak and disagree tenfold, the cheaper one waits: not buying is the safe mistake.
    """
    by_cloud: dict[str, list[float]] = defaultdict(list)
    for offer in offers:
        by_cloud[offer.cloud].append(offer.usd_per_gpu_hour)
    return median(median(prices) for prices in by_cloud.values())


def _suspicion(offer: Offer, prices: _Prices) -> _Doubt | None:
    """What is odd about a sound row among the others."""
    fair = prices.gpu.get(offer.gpu)
    share = CHEAP_SHARE if offer.tenure is Tenure.ON_DEMAND else CHEAP_SPOT_SHARE
    if fair is not None and offer.usd_per_gpu_hour < share * fair:
        reason = f"{offer.usd_per_gpu_hour:.4g} USD per GPU-hour is under {share:.0%} of the usual {fair:.4g}"
        return _Doubt(field="price", outcome=Outcome.QUARANTINE, reason=reason)
    if offer.tenure is Tenure.ON_DEMAND:
        return None
    own = prices.machine.get((offer.cloud, offer.region, offer.instance_type))
    if own is not None:
        return _spot_suspicion(offer.usd_per_hour, own)
    around = prices.dearest.get((offer.cloud, offer.region, offer.gpu)) or prices.dearest.get(
        (offer.cloud, "", offer.gpu)
    )
    if around is not None and offer.usd_per_gpu_hour < FLOOR_SHARE * around:
        return _floor(offer.usd_per_gpu_hour, around)
    return None


def _spot_suspicion(spot: float, on_demand: float) -> _Doubt | None:
    if spot > on_demand * OVER_ON_DEMAND:
        return _reject("price", f"spot {spot:.4g} is over on-demand {on_demand:.4g}")
    if spot < on_demand * FLOOR_SHARE:
        return _floor(spot, on_demand)
    if spot >= on_demand / OVER_ON_DEMAND:
        return _Doubt(field="price", outcome=Outcome.FLAG, reason=f"spot equals on-demand ({on_demand:.4g} USD/h)")
    return None


def _floor(spot: float, on_demand: float) -> _Doubt:
    reason = f"spot {spot:.4g} is {spot / on_demand:.0%} of on-demand: a floor price, capacity unproven"
    return _Doubt(field="price", outcome=Outcome.FLAG, reason=reason)


def _reject(field: str, reason: str) -> _Doubt:
    return _Doubt(field=field, outcome=Outcome.REJECT, reason=reason)


def _finding(row: str, source: str, doubt: _Doubt) -> Finding:
    return Finding(source=source, row=row, field=doubt.field, outcome=doubt.outcome, reason=doubt.reason)


def _offer(row: Row) -> Offer:
    """Build the offer of a row without a flaw."""
    price, as_of = usd_per_hour(row), moment(row.as_of)
    assert price is not None and as_of is not None, "only rows without a flaw become offers"
    return Offer(
        id=row.id,
        cloud=row.cloud,
        region=row.region,
        zone=row.zone,
        instance_type=row.instance_type,
        tenure=Tenure(row.tenure),
        gpu=row.gpu,
        gpu_count=int(row.gpu_count),
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        network_gb_per_s=row.network_gb_per_s,
        usd_per_hour=price,
        quota=row.quota,
        quota_units=row.quota_units,
        as_of=as_of,
        source=row.source,
    )
