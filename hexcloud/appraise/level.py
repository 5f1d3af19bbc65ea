"""Level: a price that stands where no price of such a machine stands. Freed by a witness, a bill or the user only.

A source that repeats itself, however often, confirms nothing: the same mistake is read off the same list every day.
"""

from collections.abc import Iterator

from hexcloud.appraise.doubt import Doubt, quarantine
from hexcloud.appraise.known import Known
from hexcloud.appraise.limits import CHEAP_SHARE, CHEAP_SPOT_SHARE, GPU_COUNTS
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row


def level_fault(row: Row, usd: float, known: Known, witnesses: Witnesses) -> Doubt | None:
    """Return the first fault that nobody confirmed. `usd` is the row's price of the whole machine per hour."""
    faults = [fault for fault in _faults(row, usd, known) if not known.vouches(row.id, fault.rule)]
    if not faults or witnesses.confirm(row, usd):
        return None
    return faults[0]


def _faults(row: Row, usd: float, known: Known) -> Iterator[Doubt]:
    if row.missing:
        yield quarantine("missing_part", "missing", f"the price leaves out {row.missing}, which is billed too")
    if row.gpu_count not in GPU_COUNTS and known.odd_counts.get(row.instance_type) != row.gpu_count:
        usual = ", ".join(map(str, sorted(GPU_COUNTS)))
        yield quarantine("impossible_count", "gpu_count", f"{row.gpu_count:g} GPUs; machines have {usual}")
    fair, each = known.usual_usd_per_gpu_hour.get(row.gpu), usd / row.gpu_count
    share = CHEAP_SPOT_SHARE if row.tenure == Tenure.SPOT else CHEAP_SHARE
    if fair is not None and each < share * fair:
        reason = f"{each:.4g} USD per GPU-hour is under {share:.0%} of the usual {fair:.4g}"
        yield quarantine("far_too_cheap", "price", reason)
