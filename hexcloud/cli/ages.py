"""How old something is, in the one unit a reader wants, and from which days prices are."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from hexcloud.domain.offer import Offer

_UNITS = ((86400.0 * 365, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"))


def age(seconds: float) -> str:
    """Return a span such as `3 days`, `7 h`, `2 min`; never negative.

    >>> age(26 * 3600)
    '26 h'
    """
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


class PriceDates(NamedTuple):
    """When the oldest and the newest of some prices were true."""

    oldest: "datetime"
    newest: "datetime"

    def __str__(self) -> str:
        """Return `2026-07-30`, or `2026-03-05 to 2026-07-30`."""
        days = dict.fromkeys(f"{moment:%Y-%m-%d}" for moment in self)
        return " to ".join(days)


def price_dates(offers: "Iterable[Offer]") -> PriceDates:
    """Return from when the prices of offers are. Raises ValueError when there is none."""
    moments = [offer.as_of for offer in offers]
    return PriceDates(min(moments), max(moments))
