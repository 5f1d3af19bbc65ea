"""Units: what a price would be for a whole machine, in its own currency and in USD per hour.

A currency is converted once, here, at the rate of the day. What is remembered and compared over time is the list price
in its own currency, so a new rate never looks like a new price.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from hexcloud.domain.row import Row


def rate(currency: str, usd_per_unit: Mapping[str, float]) -> float | None:
    """Return USD for one unit of a currency; None when there is no rate, or none that converts a price."""
    found = usd_per_unit.get(currency)
    return found if found is not None and math.isfinite(found) and found > 0 else None


def usd_per_hour(row: Row, usd_per_unit: Mapping[str, float]) -> float | None:
    """Return the price of the whole machine in USD/h; None for a currency without a rate."""
    one_unit = rate(row.currency, usd_per_unit)
    return None if one_unit is None else row.list_price * one_unit


def moment(text: str) -> datetime | None:
    """Return an ISO date or time, in UTC where it names no zone; None when it is neither, or no clock can show it."""
    try:
        read = datetime.fromisoformat(text)
        zoned = read if read.tzinfo else read.replace(tzinfo=UTC)
        zoned.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return zoned
