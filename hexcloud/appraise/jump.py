"""Jump: a price that jumped since its source last spoke. Freed by a second snapshot with other content, or by a word.

Real steps exist (a cloud cut an on-demand price by 44 % in a day, another halved a spot price), and so do days on which
a list is wrong. A price is compared with the last accepted one of the same source in its own currency, so a new
exchange rate is no step.
"""

from collections import defaultdict

from hexcloud.appraise.doubt import Doubt, quarantine
from hexcloud.appraise.known import Known
from hexcloud.appraise.limits import STEP, STEP_AGREES
from hexcloud.appraise.units import rate
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held
from hexcloud.domain.row import Row

RULE = "step"


class Steps:
    """The last prices, and the jumps that wait for a second snapshot."""

    def __init__(self, known: Known, content: str) -> None:
        """Judge a snapshot with this hash of its content."""
        self._known = known
        self._waiting: dict[tuple[str, OfferId], list[Held]] = defaultdict(list)
        for held in known.held:
            if held.rule == RULE and held.content and content and held.content != content:
                self._waiting[held.source, held.offer_id].append(held)

    def doubt(self, row: Row) -> Doubt | None:
        """Return the doubt about a jump that nobody confirmed."""
        last, now = self._last(row), row.list_price
        if last is None or not last > 0 or abs(now - last) <= STEP * last:
            return None
        if self._known.vouches(row.id, RULE) or self._is_confirmed(row, now):
            return None
        change = f"{last:.4g} -> {now:.4g} {row.currency}/h ({now / last - 1:+.0%})"
        return quarantine(RULE, "price", f"{change} since the last snapshot; waits for a second one that says so")

    def _last(self, row: Row) -> float | None:
        """Return the last accepted list price in the row's currency: a source may change currencies."""
        last = self._known.last.get((row.source, row.id))
        if last is None or last[1] == row.currency:
            return None if last is None else last[0]
        rates = self._known.usd_per_unit
        old, new = rate(last[1], rates), rate(row.currency, rates)
        return None if old is None or new is None else last[0] * old / new

    def _is_confirmed(self, row: Row, now: float) -> bool:
        """Did an earlier snapshot, and not this one read twice, bring the same price?"""
        return any(
            held.currency == row.currency and abs(held.list_price - now) <= STEP_AGREES * now
            for held in self._waiting.get((row.source, row.id), ())
        )
