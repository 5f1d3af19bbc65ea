"""Units: what a price would be in the one unit of this program, USD per hour of a whole machine."""

from datetime import UTC, datetime

from hexcloud.appraise.row import Per, Row


def usd_per_hour(row: Row) -> float | None:
    """Return the price of the whole machine in USD/h; None for a currency that we have no rate for.

    No rate is bundled: a list price in another currency is another market (AWS China lists in CNY).
    """
    if row.currency != "USD":
        return None
    return row.price * row.gpu_count if row.per is Per.GPU else row.price


def moment(text: str) -> datetime | None:
    """Return an ISO date or time, in UTC where it names no zone; None when it is neither."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
