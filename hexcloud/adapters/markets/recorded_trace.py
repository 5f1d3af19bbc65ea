"""Recorded traces: what happened to prices or to capacity once, played again from the moment a run begins."""

from fnmatch import fnmatchcase

from hexcloud.adapters.markets.availability import Availability
from hexcloud.adapters.markets.trace import TraceEvent, TraceKind, TracePrice
from hexcloud.appraise.series import Judged
from hexcloud.domain.offer import Offer, OfferId

ALL = 1_000_000
"""More machines than any pool of a run has."""


class RecordedPrices:
    """Prices as they were, those that the gate believes. Implements MarketTrace.

    An offer follows the series of its own id, else the one of its region (zone `-`); an offer that neither names keeps
    its own price. While a recorded offer is listed without a price, or not listed, or not believed yet, it is sold out.
    """

    def __init__(self, name: str, judged: Judged, start_s: float, offers: str = "*") -> None:
        """`start_s` is the recorded moment at which the run begins, seconds since the epoch; `offers` a pattern."""
        self.name = name
        self._judged = judged.history
        self._believed = judged.believed()
        self._named = frozenset(self._judged.ids)
        self._last_s = self._judged.last_s
        self._start_s = start_s
        self._pattern = offers

    def price(self, offer: Offer, at_s: float) -> TracePrice | None:
        """Return what an offer cost then; None for one that the recording does not name, or has not priced yet.

        A price is as old as the last look that confirmed it: it ages from a doubt, from the day it was no longer for
        sale (what runs there is still billed by it), and from the recording's end.
        """
        series, then_s = self._series(offer.id), self._start_s + at_s
        quote = None if series is None else self._believed.last_price(series, then_s)
        if series is None or quote is None or quote.usd_per_hour is None:
            return None
        news = self._judged.at_s[self._judged.series(series)]
        other_s = next((float(one) for one in news[news.searchsorted(quote.since_s, side="right") :]), then_s)
        true_s = min(then_s, other_s, max(quote.since_s, self._last_s))
        return TracePrice(quote.usd_per_hour, true_s - self._start_s, quote.proven)

    def is_sold_out(self, offer_id: OfferId, at_s: float) -> bool:
        """Was there no price to buy at?"""
        series = self._series(offer_id)
        if series is None:
            return False
        quote = self._believed.price_at(series, self._start_s + at_s)
        return quote is None or quote.usd_per_hour is None

    def preemptions(self, from_s: float, to_s: float) -> tuple[TraceEvent, ...]:
        """Return none: prices alone do not say who lost a machine."""
        return ()

    def unmet(self, offers: tuple[Offer, ...]) -> tuple[str, ...]:
        """Return the whole recording when it names no offer of the market; that it names others too is no news."""
        met = any(self._series(offer.id) is not None for offer in offers)
        return () if met else (f"{self._pattern} of {len(self._named)} recorded offers",)

    def _series(self, offer_id: OfferId) -> OfferId | None:
        if not fnmatchcase(offer_id, self._pattern):
            return None
        if offer_id in self._named:
            return offer_id
        cloud, region, _, rest = offer_id.split("/", 3)
        regional = OfferId(f"{cloud}/{region}/-/{rest}")
        return regional if regional in self._named else None


class RecordedAvailability:
    """How many machines could be had, played over the pools of a pattern. Implements MarketTrace.

    At 0 the pools are sold out. When the count falls, as many machines are taken back; when it falls to 0, all are.
    """

    def __init__(self, name: str, availability: Availability, start_s: float, offers: str) -> None:
        """`start_s` is the moment of the recording at which the run begins, seconds since the recording began."""
        self.name = name
        self._availability = availability
        self._start_s = start_s
        self._pattern = offers

    def price(self, offer: Offer, at_s: float) -> TracePrice | None:
        """Return None: prices stay the source's own."""
        return None

    def is_sold_out(self, offer_id: OfferId, at_s: float) -> bool:
        """Could no machine be had?"""
        return fnmatchcase(offer_id, self._pattern) and self._availability.count_at(self._start_s + at_s) == 0

    def preemptions(self, from_s: float, to_s: float) -> tuple[TraceEvent, ...]:
        """Return the falls of the count in (from_s, to_s]; those before the run are not its own."""
        first_s, last_s = self._start_s + max(0.0, from_s), self._start_s + to_s
        return tuple(
            TraceEvent(
                at_s=at_s - self._start_s,
                kind=TraceKind.PREEMPT,
                offer=self._pattern,
                count=lost if self._availability.count_at(at_s) else ALL,
            )
            for at_s, lost in self._availability.falls(first_s, last_s)
        )

    def unmet(self, offers: tuple[Offer, ...]) -> tuple[str, ...]:
        """Return the pattern when it meets no offer."""
        return () if any(fnmatchcase(offer.id, self._pattern) for offer in offers) else (self._pattern,)
