"""How many machines of an offer a plan may hold, and how many it holds now."""

from collections import Counter

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy

_UNPROVEN_STOCK = 1
"""One machine is enough to learn whether an offer's capacity exists."""


class Stock:
    """Limits of one market, policy and fleet. What runs may always stay."""

    def __init__(self, market: Market, policy: Policy, fleet: FleetState) -> None:
        self._policy = policy
        self._sold_out = frozenset(fleet.sold_out)
        self._as_of = market.as_of
        self._quota_left = {quota.key: quota.left for quota in market.quotas}
        self._running = Counter((node.role, node.offer_id) for node in fleet.live())

    def running(self, offer: OfferId, role: Role | None = None) -> int:
        """Return how many live nodes an offer has, in one role or in both."""
        if not self._running:
            return 0
        roles = (role,) if role is not None else tuple(Role)
        return sum(self._running[one, offer] for one in roles)

    def refusal(self, offer: Offer) -> tuple[str, str] | None:
        """Return rule and reason why no new machine of the offer may be rented, or None when some may."""
        if offer.id in self._sold_out:
            return "sold_out", "refused us lately"
        if self._is_old(offer):
            return "price_age", f"price of {offer.as_of:%Y-%m-%d} is over {self._policy.max_price_age_h:g} h old"
        if not offer.proven and not self._policy.try_unproven:
            return "unproven", "its price suggests capacity that does not exist (try_unproven: true rents one)"
        if self._available(offer) == 0:
            return "stock", "no machine is listed as available"
        if offer.quota in self._quota_left and self._quota_left[offer.quota] < offer.quota_units:
            left = self._quota_left[offer.quota]
            return "quota", f"takes {offer.quota_units:g} units of {offer.quota}, {left:g} are left"
        return None

    def most(self, offer: Offer) -> int:
        """Return how many machines a plan may hold: what is listed and the policy allows, or what runs.

        A quota binds all offers that draw on it together, so it is a row of its own.
        """
        running = self.running(offer.id)
        return running if self.refusal(offer) else max(running, self._available(offer))

    def _available(self, offer: Offer) -> int:
        limits = [self._policy.max_nodes_per_pool]
        if offer.stock is not None:
            limits.append(offer.stock)
        if not offer.proven:
            limits.append(_UNPROVEN_STOCK if self.running(offer.id) == 0 else self._policy.max_nodes_per_pool)
        return min(limits)

    def _is_old(self, offer: Offer) -> bool:
        limit_h = self._policy.max_price_age_h
        return limit_h is not None and (self._as_of - offer.as_of).total_seconds() > limit_h * 3600.0
