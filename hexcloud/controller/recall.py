"""recall: ask a source what its prices were, judge that by what is believed now, keep what is older than known."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from hexcloud.appraise.known import Known
from hexcloud.appraise.past import judge_past
from hexcloud.appraise.units import usd_per_hour
from hexcloud.controller.refresh import CLOCKS_DIFFER, Facts, PartReport, known_now
from hexcloud.domain.offer import Tenure
from hexcloud.domain.prices import PastPart
from hexcloud.domain.row import Belief
from hexcloud.ports import PastSource, PriceStore

_Region = tuple[str, str, str]
"""Source, cloud, region."""


def recall(source: PastSource, prices: PriceStore, facts: Facts, days: float) -> Iterator[PartReport]:
    """Yield a report for each region as its past is kept. Raises StoreError; what a source does wrong is a report.

    The past is judged by what is believed now, so it needs a refresh of its region before it. What is refused is
    counted and not kept: no later look can mend it.
    """
    known = known_now(prices, facts)
    good = {(one.source, one.cloud, one.region): one.good_s for one in prices.refreshes()}
    on_demand = _on_demand(prices.current(), known)
    for part in source.past(days):
        where = (part.source, part.cloud, part.region)
        never = "" if good.get(where) is not None else "no prices of now to judge the past by; refresh the region first"
        report = PartReport(
            source=part.source,
            cloud=part.cloud,
            region=part.region,
            problem=part.problem or never,
            good_s=good.get(where),
            past=True,
        )
        then = known.model_copy(update={"latest": part.as_of + CLOCKS_DIFFER})
        yield report if report.problem else _recalled(report, part, then, on_demand[where], prices)


def _recalled(
    report: PartReport, part: PastPart, known: Known, on_demand: Mapping[str, float], prices: PriceStore
) -> PartReport:
    judged = judge_past(part, known, on_demand)
    changes = prices.save_past(judged.changes)
    return report.model_copy(update={"rows": len(part.prices), "changes": changes, "outcomes": judged.outcomes})


def _on_demand(beliefs: Iterable[Belief], known: Known) -> Mapping[_Region, dict[str, float]]:
    """Return what each instance type costs on demand in each region at each source, USD/h: the dearest zone's price."""
    found: dict[_Region, dict[str, float]] = defaultdict(dict)
    for row in (belief.row for belief in beliefs if belief.row.tenure == Tenure.ON_DEMAND):
        usd, machines = usd_per_hour(row, known.usd_per_unit), found[row.source, row.cloud, row.region]
        if usd is not None:
            machines[row.instance_type] = max(usd, machines.get(row.instance_type, 0.0))
    return found
