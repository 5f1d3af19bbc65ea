"""What is remembered of prices: changes, rows in quarantine, vouchers, and when each source last answered."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Quota
from hexcloud.domain.offer import OfferId
from hexcloud.domain.row import Belief


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


class PastPrice(NamedTuple):
    """One earlier price, from a moment on. Numbers may be NaN, infinite, zero or negative: the gate decides."""

    offer_id: OfferId
    at_s: float
    """Seconds since the epoch."""
    list_price: float
    """Per hour and machine, in the currency of its PastPart."""


class PastPart(Frozen):
    """What one source still knows of the earlier prices of one region. With a problem, nothing."""

    source: str
    cloud: str
    region: str
    """`*` for a source that fails before it knows its regions."""
    as_of: datetime
    """When it was asked: the last price of each offer was in force until then."""
    currency: str = "USD"
    prices: tuple[PastPrice, ...] = ()
    """In any order; an offer has its price until the next one."""
    gpus: Mapping[str, tuple[str, float]] = {}
    """Instance type -> GPU and how many of it."""
    problem: str = ""
    """One line for people: what failed and what to do about it. Empty: none."""


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
    """A word for one price of an offer, which frees it from quarantine, or one that takes all earlier words back."""

    offer_id: OfferId
    source: str = ""
    """Who lists the price."""
    rule: str = ""
    """Which it waited under."""
    list_price: float | None = None
    """Per hour and machine, in `currency`. None: the word is for no price, and frees nothing."""
    currency: str = ""
    by: str
    """`user`, or `bill` with the price paid."""
    note: str = ""
    usd_per_hour: float | None = None
    """What the bill said: it speaks for the price whoever lists it."""
    at_s: float
    takes_back: bool = False
    """Does it free nothing, and cancel every earlier word for the offer?"""


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
    priced: int = 0
    """Rows with a price that could be paid at that time, believed or not."""
    complete: bool = False
    """Was that answer all that the cloud itself offers in the region?"""
    problem: str = ""
    short_prices: int = 0
    """Prices in the last answer when it was taken for half-written; 0: it was not."""
    short_content: str = ""
    """Hash of what that answer said."""


class PriceBook(NamedTuple):
    """Everything that a market is made from, as of one moment."""

    mark: int
    """See `PriceStore.mark`."""
    current: tuple[Belief, ...]
    doubts: tuple[Belief, ...]
    refreshes: tuple[Refresh, ...]
    quotas: tuple[Quota, ...]
    rates: dict[str, float]
    """The user's: currency -> USD for one unit."""
