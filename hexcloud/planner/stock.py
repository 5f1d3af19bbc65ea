"""How many machines of an offer a plan may hold, and how many it holds now."""

import math
from collections import Counter

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy

_UNPROVEN_STOCK = 1
"""One machine is enough to learn whether an offer's capacity exists."""


_Taken = dict[str, list[tuple[float, float]]]
"""Quota -> (since when, run clock, how many units) of each machine of ours."""


class Stock:
    """Limits of one market, policy and fleet. What runs may always stay."""

    def __init__(self, market: Market, policy: Policy, fleet: FleetState) -> None:
        self._policy = policy
        self._sold_out = frozenset(fleet.sold_out)
        self._as_of = market.as_of
        self._depth = policy.max_nodes_per_pool
        self._age_limits_h = _age_limits_h(policy)
        self._quotas = {quota.key: quota for quota in market.quotas}
        self._ours = _ours(market, fleet) if market.quotas else {}
        self._running = Counter((node.role, node.offer_id) for node in fleet.live())
        rollout = [node for node in fleet.live() if node.role is Role.ROLLOUT]
        members = Counter(node.unit for node in rollout)
        heads = (node for node in rollout if node.rank == 0)
        self._units = Counter((node.offer_id, members[node.unit] if node.head else 1) for node in heads)

    def running(self, offer: OfferId, role: Role | None = None) -> int:
        """Return how many live nodes an offer has, in one role or in both."""
        if not self._running:
            return 0
        roles = (role,) if role is not None else tuple(Role)
        return sum(self._running[one, offer] for one in roles)

    def units(self, offer: OfferId, nodes: int) -> int:
        """Return how many rollout units of so many machines an offer has, all of them live."""
        return self._units[offer, nodes]

    def refusal(self, offer: Offer) -> tuple[str, str] | None:
        """Return rule and reason why no new machine of the offer may be rented, or None when some may."""
        if offer.id in self._sold_out:
            return "sold_out", "refused us lately"
        limit_h = self._age_limits_h[offer.is_live]
        if limit_h < math.inf and (self._as_of - offer.as_of).total_seconds() > limit_h * 3600.0:
            mend = f"; read it again: hexcloud catalog refresh --cloud {offer.cloud}" if offer.is_live else ""
            return "price_age", f"price of {offer.as_of:%Y-%m-%d} is over {limit_h:g} h old{mend}"
        if not offer.proven and not self._policy.try_unproven:
            return "unproven", "its price suggests capacity that does not exist (try_unproven: true rents one)"
        if self._available(offer) == 0:
            return "stock", "no machine is listed as available"
        for draw in offer.draws() if self._quotas else ():
            quota = self._quotas.get(draw.quota)
            left = draw.units if quota is None else max(0.0, quota.left - self._units_since(quota))
            if left < draw.units:
                return "quota", f"takes {draw.units:g} units of {draw.quota}, {left:g} are left"
        return None

    def most_units(self, quota: Quota) -> float:
        """Return how many units of a quota a plan may draw on: what was left, and what our own machines had of it then.

        What runs may stay, also where more of ours started since than were left.
        """
        ours = sum(units for _, units in self._ours.get(quota.key, ()))
        return max(ours, quota.left + ours - self._units_since(quota))

    def _units_since(self, quota: Quota) -> float:
        """Return what our machines take that are not known to have run when the cloud said how much was left."""
        read_s = -math.inf if quota.as_of is None else quota.as_of.timestamp()
        return sum(units for ready_s, units in self._ours.get(quota.key, ()) if ready_s > read_s)

    def most(self, offer: Offer) -> int:
        """Return how many machines a plan may hold: what is listed and the policy allows, or what runs.

        A quota binds all offers that draw on it together, so it is a row of its own.
        """
        running = self.running(offer.id)
        return running if self.refusal(offer) else max(running, self._available(offer))

    def _available(self, offer: Offer) -> int:
        depth = self._depth if offer.stock is None else min(self._depth, offer.stock)
        if offer.proven or self.running(offer.id):
            return depth
        return min(depth, _UNPROVEN_STOCK)


def _age_limits_h(policy: Policy) -> tuple[float, float]:
    """Return how old a price may be, and how old one that a refresh can renew."""
    old = math.inf if policy.max_price_age_h is None else policy.max_price_age_h
    live = math.inf if policy.max_live_price_age_h is None else policy.max_live_price_age_h
    return old, min(old, live)


def _ours(market: Market, fleet: FleetState) -> _Taken:
    """Return what our live machines take of each quota; one that is not ready yet may not be counted by the cloud."""
    draws = {offer.id: offer.draws() for offer in market.offers}
    taken: _Taken = {}
    for node in fleet.live():
        since_s = math.inf if node.ready_at_s is None else node.ready_at_s
        for draw in draws.get(node.offer_id, ()):
            taken.setdefault(draw.quota, []).append((since_s, draw.units))
    return taken
