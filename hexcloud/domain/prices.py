"""What is remembered of prices: changes, rows in quarantine, vouchers, and when each source last answered."""

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId


class PriceChange(Frozen):
    """One accepted change of one offer's price at one source."""

    offer_id: OfferId
    source: str
    at_s: float
    """When the price was first seen, seconds since the epoch."""
    confirmed_s: float
    """When it was last seen unchanged."""
    usd_per_hour: float | None
    """None: the source no longer lists the offer."""
    list_price: float | None
    currency: str


class Held(Frozen):
    """A row that waits for somebody who confirms it."""

    offer_id: OfferId
    source: str
    rule: str
    reason: str
    list_price: float
    """Per hour and machine, in `currency`."""
    currency: str
    content: str
    """Hash of the snapshot that brought it; the same snapshot once more confirms nothing."""
    at_s: float
    """Since when it waits, seconds since the epoch."""


class Voucher(Frozen):
    """A word for an offer that frees it from quarantine."""

    offer_id: OfferId
    rule: str = "*"
    by: str
    """`user`, or `bill` with the price paid."""
    note: str = ""
    usd_per_hour: float | None = None
    """What the bill said."""
    at_s: float


class Refresh(Frozen):
    """How the last refresh of one region went."""

    source: str
    cloud: str
    region: str
    at_s: float
    good_s: float | None
    """When it last answered well; None: never."""
    rows: int
    """Rows believed at that time."""
    problem: str = ""
    short_prices: int = 0
    """Prices in the last answer when it was taken for half-written; 0: it was not."""
    short_content: str = ""
    """Hash of what that answer said."""
