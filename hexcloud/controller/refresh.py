"""refresh: ask a source of prices, judge what it says, keep what is believed. The last good answer is never lost."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from pydantic import Field

from hexcloud.appraise.gate import gate
from hexcloud.appraise.half_written import Short, prices_in, problem_of
from hexcloud.appraise.known import Known, Seen
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.prices import Refresh
from hexcloud.domain.row import Belief, Part
from hexcloud.ports import PriceSource, PriceStore

CLOCKS_DIFFER = timedelta(hours=1)


class Facts(Frozen):
    """What the gate compares with that no refresh changes."""

    usual_usd_per_gpu_hour: dict[str, float]
    usd_per_unit: dict[str, float]
    odd_counts: dict[str, float]
    offers: tuple[Offer, ...] = ()
    """Of the bundled catalog: witnesses from other sources."""
    proven: frozenset[OfferId] = frozenset()
    """Pools in which a launch of ours succeeded."""


class PartReport(Frozen):
    """How the refresh of one region went."""

    source: str
    cloud: str
    region: str
    problem: str = ""
    """Why nothing was kept; empty when all is well."""
    good_s: float | None = None
    """When this region last answered well, seconds since the epoch; None: never."""
    rows: int = 0
    changes: int = 0
    """Prices that are new, other than before, or gone."""
    outcomes: dict[Outcome, int] = Field(default_factory=dict)


def refresh(source: PriceSource, prices: PriceStore, facts: Facts) -> Iterator[PartReport]:
    """Yield a report for each region as its answer is kept. Raises StoreError; what a source does wrong is a report.

    What is known grows only between refreshes, so the order in which regions answer changes no outcome.
    """
    known = known_now(prices, facts)
    last = {(one.source, one.cloud, one.region): one for one in prices.refreshes()}
    for part in source.fetch():
        before = last.get((part.source, part.cloud, part.region))
        problem = problem_of(part, before.rows if before else 0, _short(before))
        good_s = _last_good_s(last.values(), part)
        if problem:
            prices.save_part(_refused(part, problem), ())
            yield PartReport(source=part.source, cloud=part.cloud, region=part.region, problem=problem, good_s=good_s)
        else:
            yield _kept(part, gate(part.rows, _until(known, part), part.content), prices)


def _last_good_s(refreshes: Iterable[Refresh], part: Part) -> float | None:
    """When the region last answered well; for a source that failed as a whole, when any of its regions did."""
    good = (
        one.good_s
        for one in refreshes
        if (one.source, one.cloud) == (part.source, part.cloud) and part.region in (one.region, "*")
    )
    return max((at_s for at_s in good if at_s is not None), default=None)


def _until(known: Known, part: Part) -> Known:
    """A source dates its prices at the latest by the moment it is asked, give or take clocks that differ."""
    return known.model_copy(update={"latest": part.as_of + CLOCKS_DIFFER})


def _short(before: Refresh | None) -> Short | None:
    if before is None or before.short_prices == 0:
        return None
    return Short(prices=before.short_prices, content=before.short_content)


def _refused(part: Part, problem: str) -> Part:
    """The part with why it is not kept; of a half-written one it is remembered what it looked like."""
    short = 0 if part.problem else prices_in(part)
    return part.model_copy(update={"problem": problem, "rows": (), "quotas": (), "short_prices": short})


def _kept(part: Part, beliefs: tuple[Belief, ...], prices: PriceStore) -> PartReport:
    changes = prices.save_part(part, beliefs)
    counts = Counter(belief.outcome for belief in beliefs)
    return PartReport(
        source=part.source,
        cloud=part.cloud,
        region=part.region,
        good_s=part.as_of.timestamp(),
        rows=len(beliefs),
        changes=changes,
        outcomes={outcome: counts[outcome] for outcome in Outcome},
    )


def known_now(prices: PriceStore, facts: Facts) -> Known:
    """Return what the gate may compare with at this moment. Raises StoreError."""
    beliefs = prices.current()
    waiting = (belief for belief in prices.doubts() if belief.outcome is Outcome.QUARANTINE)
    return Known(
        usual_usd_per_gpu_hour=facts.usual_usd_per_gpu_hour,
        usd_per_unit={**facts.usd_per_unit, **prices.rates()},
        odd_counts=facts.odd_counts,
        last={(one.row.source, one.row.id): (one.row.list_price, one.row.currency) for one in beliefs},
        held=prices.held(),
        seen=(*(_seen_row(one) for one in (*beliefs, *waiting)), *(_seen_offer(offer) for offer in facts.offers)),
        vouched=frozenset((voucher.offer_id, voucher.rule) for voucher in prices.vouchers()),
        proven=facts.proven,
    )


def lineage_of(source: str) -> str:
    """Return who read the prices of a bundled source: every edition of SkyPilot's catalog is SkyPilot's word."""
    return "skypilot" if source.startswith("skypilot") else source


def _seen_row(belief: Belief) -> Seen:
    row = belief.row
    return Seen(
        cloud=row.cloud,
        region=row.region,
        instance_type=row.instance_type,
        tenure=row.tenure,
        gpu_count=row.gpu_count,
        usd_per_hour=row.list_price * belief.usd_per_unit,
        lineage=row.lineage or row.source,
        is_believed=belief.is_believed,
    )


def _seen_offer(offer: Offer) -> Seen:
    return Seen(
        cloud=offer.cloud,
        region=offer.region,
        instance_type=offer.instance_type,
        tenure=offer.tenure.value,
        gpu_count=offer.gpu_count,
        usd_per_hour=offer.usd_per_hour,
        lineage=lineage_of(offer.source),
    )
