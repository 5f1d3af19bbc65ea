"""Jump: a price that jumped since its source last spoke. Freed by a second snapshot with other content, or by a word.

Real steps exist (a cloud cut an on-demand price by 44 % in a day, another halved a spot price), and so do days on which
a list is wrong. A price is compared with the last accepted one of the same source in its own currency, so a new
exchange rate is no step. A price that goes on moving is confirmed by whatever is on the same side of the last accepted
one and nearer to where it jumped to; but a fall that goes on to fall by as much again is a new step, since what is far
too cheap costs money and what is too dear is only not bought.
"""

from collections import defaultdict

from hexcloud.appraise.doubt import Doubt, quarantine
from hexcloud.appraise.known import Known
from hexcloud.appraise.limits import STEP
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
        if last is None or not last > 0 or not is_step(last, now):
            return None
        if self._known.vouches(row, RULE) or self._is_confirmed(row, last, now):
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

    def _is_confirmed(self, row: Row, last: float, now: float) -> bool:
        """Did an earlier snapshot, and not this one read twice, say about the same?"""
        return any(
            held.currency == row.currency and confirms(last, held.list_price, now)
            for held in self._waiting.get((row.source, row.id), ())
        )


def is_step(last: float, now: float) -> bool:
    """Is a price too far from the last accepted one to be believed at once?"""
    return abs(now - last) > STEP * last


def confirms(last: float, held: float, now: float) -> bool:
    """Does a second look confirm that a price has left the last accepted one? `held` is what the first look said.

    Both are steps to the same side, and the second is nearer to the first than to where it came from.
    """
    same_side = is_step(last, held) and is_step(last, now) and (held > last) == (now > last)
    falls_on = now < last and now < held and is_step(held, now)
    return same_side and not falls_on and abs(now - held) < abs(now - last)
