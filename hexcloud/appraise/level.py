"""Level: a price that stands where no price of such a machine stands. Freed by a witness, a bill or the user only.

A source that repeats itself, however often, confirms nothing: the same mistake is read off the same list every day.
"""

from collections.abc import Iterator

from hexcloud.appraise.doubt import Doubt, quarantine
from hexcloud.appraise.known import Known, agree
from hexcloud.appraise.limits import GPU_COUNTS, SMALL, cheap_share
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row


def level_fault(row: Row, usd: float, known: Known, witnesses: Witnesses) -> Doubt | None:
    """Return the first fault that nobody confirmed. `usd` is the row's price of the whole machine per hour."""
    unproven = (fault for fault in _faults(row, usd, known, witnesses) if not known.vouches(row, fault.rule))
    return next((fault for fault in unproven if not _is_confirmed(fault, row, usd, witnesses)), None)


def _is_confirmed(fault: Doubt, row: Row, usd: float, witnesses: Witnesses) -> bool:
    is_count = fault.rule == "impossible_count"
    return witnesses.confirm_count(row, usd) if is_count else witnesses.confirm_price(row, usd)


def _faults(row: Row, usd: float, known: Known, witnesses: Witnesses) -> Iterator[Doubt]:
    if row.missing:
        yield quarantine("missing_part", "missing", f"the price leaves out {row.missing}, which is billed too")
    if row.gpu_count not in GPU_COUNTS and known.odd_counts.get(row.instance_type) != row.gpu_count:
        usual = ", ".join(map(str, sorted(GPU_COUNTS)))
        yield quarantine("impossible_count", "gpu_count", f"{row.gpu_count:g} GPUs; machines have {usual}")
    fair, each = known.usual_usd_per_gpu_hour.get(row.gpu), usd / row.gpu_count
    share = cheap_share(row.tenure == Tenure.SPOT, row.gpu_count)
    if fair is not None and each < share * fair:
        reason = f"{each:.4g} USD per GPU-hour is under {share:.0%} of the usual {fair:.4g}"
        yield quarantine("far_too_cheap", "price", reason)
    elsewhere = witnesses.on_demand_anywhere(row)
    if elsewhere is not None and row.gpu_count >= SMALL and agree(usd * row.gpu_count, elsewhere):
        reason = (
            f"{usd:.4g} USD/h is a {row.gpu_count:g}th of the {elsewhere:.4g} listed elsewhere: the price of one GPU?"
        )
        yield quarantine("per_gpu_price", "price", reason)
