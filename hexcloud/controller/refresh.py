"""refresh: ask a source of prices, judge what it says, keep what is believed. No good answer is ever lost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import Field

from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.half_written import Short, is_cut_short, problem_of
from hexcloud.appraise.known import Known, Seen, in_force
from hexcloud.appraise.scores import scores_of
from hexcloud.appraise.units import moment
from hexcloud.appraise.usual import usual_prices
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.prices import Refresh
from hexcloud.domain.row import Belief, Part
from hexcloud.ports import PriceSource, PriceStore

CLOCKS_DIFFER = timedelta(hours=1)
_Region = tuple[str, str, str]
"""Source, cloud, region."""


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
    note: str = ""
    """What could not be read of a region that answered otherwise."""
    good_s: float | None = None
    """When this region last answered well, seconds since the epoch; None: never."""
    rows: int = 0
    changes: int = 0
    """Prices that are new, other than before, or gone."""
    outcomes: dict[Outcome, int] = Field(default_factory=dict)
    past: bool = False
    """Is it about the time before? Then `rows` are the earlier prices that the source knows, `changes` those kept."""


def refresh(
    source: PriceSource, prices: PriceStore, facts: Facts, now: Callable[[], datetime], *, every_region: bool = False
) -> Iterator[PartReport]:
    """Yield a report for each region as its answer is kept. Raises StoreError; what a source does wrong is a report.

    What is known grows only between refreshes, so the order in which regions answer changes no outcome. `now` tells
    the real time: no price can be true after it. `every_region`: the source was asked for all regions of its clouds,
    so what is known of regions that it no longer lists is gone, if nothing failed on the way.
    """
    last = {(one.source, one.cloud, one.region): one for one in prices.refreshes()}
    this = _Round(prices, known_now(prices, facts), last, now)
    for part in source.fetch():
        yield this.report(part)
    if every_region:
        yield from this.closed()


@dataclass
class _Round:
    """One round through a source."""

    prices: PriceStore
    known: Known
    last: Mapping[_Region, Refresh]
    """How the rounds before went."""
    now: Callable[[], datetime]
    told: dict[tuple[str, str], list[Part]] = field(default_factory=lambda: defaultdict(list))
    """Source, cloud -> the empty frames of the parts kept in this round."""
    failed: set[tuple[str, str]] = field(default_factory=set)
    """Source, cloud of what was not kept."""

    def report(self, part: Part) -> PartReport:
        """Judge and keep a region's answer, or note why not."""
        before, latest = self.last.get((part.source, part.cloud, part.region)), self.now() + CLOCKS_DIFFER
        problem = _undated(part, latest) or problem_of(part, before.priced if before else 0, _short(before))
        if problem:
            self.prices.save_part(_refused(part, problem, latest), (), latest.timestamp())
            return self._failed(part, problem, self.last.values())
        known = self.known.model_copy(update={"latest": min(part.as_of + CLOCKS_DIFFER, latest)})
        beliefs = gate(part.rows, known, part.content)
        changes = self.prices.save_part(part, beliefs, latest.timestamp())
        if changes is None:
            problem = f"its prices of {part.as_of:%Y-%m-%d %H:%M} are older than the ones known; the newer ones stand"
            return self._failed(part, problem, self.prices.refreshes())
        self.told[part.source, part.cloud].append(_frame(part))
        return _kept(part, beliefs, changes)

    def closed(self) -> Iterator[PartReport]:
        """Take the prices of regions for gone that their source did not speak of; where something failed, none.

        Where it left out more than half of the regions known, it was half-written: their prices grow old and stand.
        """
        latest_s = (self.now() + CLOCKS_DIFFER).timestamp()
        for (source, cloud), told in self.told.items():
            known = [
                one.region for one in self.last.values() if (one.source, one.cloud) == (source, cloud) and one.priced
            ]
            listed = {part.region for part in told}
            if self.failed & {(source, cloud), (source, "*")} or is_cut_short(listed, known):
                continue
            newest = max(told, key=lambda part: part.as_of)
            for region in sorted(set(known) - listed):
                empty = newest.model_copy(update={"region": region, "complete": all(part.complete for part in told)})
                changes = self.prices.save_part(empty, (), latest_s)
                yield _kept(empty, (), changes or 0)

    def _failed(self, part: Part, problem: str, refreshes: Iterable[Refresh]) -> PartReport:
        self.failed.add((part.source, part.cloud))
        good_s = _last_good_s(refreshes, part)
        return PartReport(source=part.source, cloud=part.cloud, region=part.region, problem=problem, good_s=good_s)


def _last_good_s(refreshes: Iterable[Refresh], part: Part) -> float | None:
    """When the region last answered well; for a source that failed as a whole, when any of its regions did."""
    good = (
        one.good_s
        for one in refreshes
        if (one.source, one.cloud) == (part.source, part.cloud) and part.region in (one.region, "*")
    )
    return max((at_s for at_s in good if at_s is not None), default=None)


def _short(before: Refresh | None) -> Short | None:
    if before is None or before.short_prices == 0:
        return None
    return Short(prices=before.short_prices, content=before.short_content)


def _undated(part: Part, latest: datetime) -> str:
    """Say that a part is from a moment yet to come."""
    if part.as_of <= latest:
        return ""
    return f"{part.source}: {part.cloud}/{part.region} is dated {part.as_of:%Y-%m-%d %H:%M}, which is yet to come"


def _frame(part: Part) -> Part:
    return part.model_copy(update={"rows": (), "quotas": (), "content": ""})


def _refused(part: Part, problem: str, latest: datetime) -> Part:
    """The part with why it is not kept; of a half-written one it is remembered what it looked like."""
    short = 0 if part.problem or part.as_of > latest else part.priced
    noted = {"problem": problem, "short_prices": short, "as_of": min(part.as_of, latest)}
    return part.model_copy(update={"rows": (), "quotas": (), **noted})


def _kept(part: Part, beliefs: tuple[Belief, ...], changes: int) -> PartReport:
    counts = Counter(belief.outcome for belief in beliefs)
    return PartReport(
        source=part.source,
        cloud=part.cloud,
        region=part.region,
        note=part.note,
        good_s=part.as_of.timestamp(),
        rows=len(beliefs),
        changes=changes,
        outcomes={outcome: counts[outcome] for outcome in Outcome},
    )


def known_now(prices: PriceStore, facts: Facts) -> Known:
    """Return what the gate may compare with at this moment. Raises StoreError."""
    book = prices.book()
    beliefs = book.current
    waiting = (belief for belief in book.doubts if belief.outcome is Outcome.QUARANTINE)
    return Known(
        usual_usd_per_gpu_hour=usual_prices(facts.usual_usd_per_gpu_hour, (*facts.offers, *offers_of(beliefs))),
        usd_per_unit={**facts.usd_per_unit, **book.rates},
        odd_counts=facts.odd_counts,
        last={(one.row.source, one.row.id): (one.row.list_price, one.row.currency) for one in beliefs},
        held=prices.held(),
        seen=(*(_seen_row(one) for one in (*beliefs, *waiting)), *(_seen_offer(offer) for offer in facts.offers)),
        vouched=in_force(prices.vouchers()),
        scores=scores_of(belief.row for belief in beliefs),
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
        gpu=row.gpu,
        gpu_count=row.gpu_count,
        usd_per_hour=row.list_price * belief.usd_per_unit,
        lineage=row.lineage or row.source,
        is_believed=belief.is_believed,
        as_of=moment(row.as_of),
    )


def _seen_offer(offer: Offer) -> Seen:
    return Seen(
        cloud=offer.cloud,
        region=offer.region,
        instance_type=offer.instance_type,
        tenure=offer.tenure.value,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        usd_per_hour=offer.usd_per_hour,
        lineage=lineage_of(offer.source),
        as_of=offer.as_of,
    )
