"""StoredMarket: the bundled snapshot, and over it everything that refreshes have brought since."""

from collections.abc import Callable
from datetime import UTC, datetime

from hexcloud.adapters.files import suggest
from hexcloud.appraise.gate import findings_of, offers_of
from hexcloud.appraise.merge import merge
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.prices import Refresh
from hexcloud.domain.row import Belief, Row
from hexcloud.ports import MarketSource, PriceStore


class StoredMarket:
    """Implements MarketSource. Reads the store again only when a refresh, a voucher or a rate has changed it."""

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
        self._mark: tuple[object, ...] | None = None
        self._market: Market | None = None
        self._check(clouds)

    def _check(self, clouds: tuple[str, ...]) -> None:
        if not clouds:
            return
        known = {offer.cloud for offer in self._base.market(0.0).offers} | {
            belief.row.cloud for belief in self._prices.current()
        }
        for cloud in clouds:
            if cloud not in known:
                raise ConfigError(f"cloud {cloud!r} is unknown{suggest(cloud, known)}")

    def market(self, now_s: float) -> Market:
        """Return what is believed at this moment. Raises MarketError as the base does, and StoreError."""
        mark = self._prices.mark()
        if self._market is None or mark != self._mark:
            self._market = self._read(self._base.market(now_s))
            self._mark = mark
        learned = self._learn(self._market.offers)
        return self._market.model_copy(update={"as_of": datetime.fromtimestamp(now_s, UTC), "offers": learned})

    def _read(self, base: Market) -> Market:
        beliefs = tuple(
            _rated(belief, self._prices.rates()) for belief in self._prices.current() if self._wants(belief.row.id)
        )
        doubts = tuple(belief for belief in self._prices.doubts() if self._wants(belief.row.id))
        stored = offers_of(beliefs)
        listed = {_machine(offer) for offer in stored} | {_machine(belief.row) for belief in doubts}
        kept = _still_listed(base.offers, listed, self._prices.refreshes())
        return base.model_copy(
            update={
                "offers": merge(offer for offer in (*kept, *stored) if self._wants(offer.id)),
                "quotas": self._prices.quotas(),
                "findings": tuple(one for one in (*base.findings, *findings_of(doubts)) if self._wants(one.row)),
            }
        )

    def _wants(self, offer_id: str) -> bool:
        return not self._clouds or offer_id.split("/", 1)[0] in self._clouds


def _rated(belief: Belief, rates: dict[str, float]) -> Belief:
    """Convert by today's rate: a list price in another currency follows it."""
    usd_per_unit = rates.get(belief.row.currency, belief.usd_per_unit)
    return belief.model_copy(update={"usd_per_unit": usd_per_unit})


_Machine = tuple[str, str, str, str]


def _machine(listing: Offer | Row) -> _Machine:
    return (listing.cloud, listing.region, listing.instance_type, str(listing.tenure))


def _still_listed(base: tuple[Offer, ...], listed: set[_Machine], refreshes: tuple[Refresh, ...]) -> tuple[Offer, ...]:
    """Drop what a later and complete answer for its region no longer lists, not even under doubt."""
    answered: dict[tuple[str, str], float] = {}
    for refresh in refreshes:
        if refresh.good_s is not None and refresh.rows > 0:
            key = (refresh.cloud, refresh.region)
            answered[key] = max(refresh.good_s, answered.get(key, 0.0))
    return tuple(
        offer
        for offer in base
        if _machine(offer) in listed or offer.as_of.timestamp() >= answered.get((offer.cloud, offer.region), 0.0)
    )
