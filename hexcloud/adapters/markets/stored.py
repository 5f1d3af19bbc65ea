"""StoredMarket: the bundled snapshot, and over it everything that refreshes have brought since."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from hexcloud.adapters.files import load_usual, suggest
from hexcloud.appraise.closed import Closed
from hexcloud.appraise.gate import findings_of, offers_of
from hexcloud.appraise.merge import evidence, merge
from hexcloud.appraise.rerate import rerated
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.prices import PriceBook
from hexcloud.ports import MarketSource, PriceStore


class _Said(NamedTuple):
    """What one reading of the store makes of the market."""

    mark: int
    market: Market
    offers: tuple[Offer, ...]
    """Believed and for sale, of all sources; ids repeat."""
    closed: tuple[tuple[Offer, str], ...]
    """No longer for sale, with who says so."""


class StoredMarket:
    """Implements MarketSource. Reads the store again only when something in it has changed."""

    def __init__(
        self,
        base: MarketSource,
        prices: PriceStore,
        clouds: tuple[str, ...] = (),
        learn: Callable[[tuple[Offer, ...]], tuple[Offer, ...]] = lambda offers: offers,
    ) -> None:
        """`clouds`: only these (empty: all); raises ConfigError when nobody lists one.

        `learn` puts on offers what our own fleet has learned of their pools.
        """
        self._base = base
        self._prices = prices
        self._clouds = frozenset(clouds)
        self._learn = learn
        self._last: _Said | None = None
        self._check(clouds)

    def _check(self, clouds: tuple[str, ...]) -> None:
        if not clouds:
            return
        answered = {one.cloud for one in self._prices.refreshes() if one.good_s is not None}
        known = answered | {offer.cloud for offer in self._base.market(0.0).offers}
        for cloud in clouds:
            if cloud not in known:
                raise ConfigError(f"cloud {cloud!r} is unknown{suggest(cloud, known)}")

    def market(self, now_s: float) -> Market:
        """Return what is believed at this moment. Raises MarketError as the base does, and StoreError."""
        market = self._said(now_s).market
        learned = self._learn(market.offers)
        return market.model_copy(update={"as_of": datetime.fromtimestamp(now_s, UTC), "offers": learned})

    def evidence(self, offer_id: OfferId, now_s: float) -> tuple[tuple[Offer, str], ...]:
        """Return what every source says of an offer, the believed one first, and why each other one lost.

        Empty when nobody sells it. Raises MarketError as the base does, and StoreError.
        """
        said = self._said(now_s)
        winner = said.market.offer(offer_id)
        if winner is None:
            return ()
        lost = ((one.offer, one.reason) for one in evidence(said.offers).get(offer_id, ()))
        closed = ((offer, f"no longer listed by {source}") for offer, source in said.closed if offer.id == offer_id)
        return ((winner, "wins"), *lost, *closed)

    def _said(self, now_s: float) -> _Said:
        if self._last is None or self._prices.mark() != self._last.mark:
            self._last = self._read(self._base.market(now_s), self._prices.book())
        return self._last

    def _read(self, base: Market, book: PriceBook) -> _Said:
        beliefs = rerated(book.current, book.rates, load_usual()) if book.rates else book.current
        closed = Closed(book.refreshes, (belief.row for belief in (*book.current, *book.doubts)))
        every = tuple(offer for offer in (*base.offers, *offers_of(beliefs)) if self._wants(offer.id))
        told = tuple((offer, closed.by(offer)) for offer in every)
        sold = tuple(offer for offer, by in told if not by)
        doubts = [belief for belief in beliefs if not belief.is_believed]
        findings = (*base.findings, *findings_of((*book.doubts, *doubts)))
        market = base.model_copy(
            update={
                "offers": merge(sold),
                "quotas": book.quotas,
                "findings": tuple(one for one in findings if self._wants(one.row)),
            }
        )
        return _Said(book.mark, market, sold, tuple((offer, by) for offer, by in told if by))

    def _wants(self, offer_id: str) -> bool:
        return not self._clouds or offer_id.split("/", 1)[0] in self._clouds
