"""Rerate: believed rows in another currency at today's rate. A rate is typed in by hand, so its prices are judged too.

The rate of the refresh had the whole gate behind it. A new one may neither make a price that cannot be paid nor bring
it far under the usual one; a row that somebody freed from that doubt stays free while its price stays about the same.
"""

from collections.abc import Iterable, Mapping

from hexcloud.appraise.doubt import Doubt
from hexcloud.appraise.flaw import flaw
from hexcloud.appraise.known import Known, agree
from hexcloud.appraise.level import level_fault
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Belief


def rerated(beliefs: Iterable[Belief], rates: Mapping[str, float], usual: Mapping[str, float]) -> tuple[Belief, ...]:
    """Return the beliefs at these rates (currency -> USD for one unit; of others, the one they carry), in their order.

    `usual` is what one GPU usually costs, USD per hour. A price that is far too cheap, or none at all, at the new rate
    becomes a doubt with its reason: no offer is made of it.
    """
    return tuple(
        belief
        if rates.get(belief.row.currency, belief.usd_per_unit) == belief.usd_per_unit
        else _at(belief, rates[belief.row.currency], usual)
        for belief in beliefs
    )


def _at(belief: Belief, usd_per_unit: float, usual: Mapping[str, float]) -> Belief:
    doubt = _doubt(belief, usd_per_unit, usual)
    if doubt is None:
        return belief.model_copy(update={"usd_per_unit": usd_per_unit})
    outcome, rule, field, reason = doubt
    told = f"at the rate of {usd_per_unit:g} USD for one {belief.row.currency}: {reason}"
    return belief.model_copy(update={"outcome": outcome, "rule": rule, "field": field, "reason": told})


def _doubt(belief: Belief, usd_per_unit: float, usual: Mapping[str, float]) -> Doubt | None:
    doubt = _fault(belief, usd_per_unit, usual)
    if doubt is None or doubt.outcome is Outcome.REJECT:
        return doubt
    is_freed = _fault(belief, belief.usd_per_unit, usual) is not None
    return None if is_freed and agree(usd_per_unit, belief.usd_per_unit) else doubt


def _fault(belief: Belief, usd_per_unit: float, usual: Mapping[str, float]) -> Doubt | None:
    """Return what a rate makes of a row whose count and parts are believed already."""
    row = belief.row.model_copy(update={"missing": ""})
    known = Known(
        usual_usd_per_gpu_hour=usual,
        usd_per_unit={row.currency: usd_per_unit},
        odd_counts={row.instance_type: row.gpu_count},
    )
    return flaw(row, known) or level_fault(row, row.list_price * usd_per_unit, known, Witnesses(known))
