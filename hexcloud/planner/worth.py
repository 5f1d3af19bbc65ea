"""worth: throughput, price and broken rules of any set of slots, so that the judge can try one before it is rented.

The arithmetic is the MILP's own (`problem`), at one throughput T.
"""

from collections import defaultdict
from dataclasses import dataclass

from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Role, Slot
from hexcloud.estimate.risk import gang_loss_share
from hexcloud.planner.problem import Problem, Region

_TOLERANCE = 1e-6
"""Relative; the MILP answers within its own tolerance, and a plan must not fail by rounding."""


@dataclass(frozen=True)
class Worth:
    """Sets of slots at today's prices, for one job and policy at one throughput."""

    problem: Problem
    samples_per_s: float
    """T: what a fleet must make, and the pace at which versions are published."""

    def price(self, slot: Slot) -> float:
        """Return one slot's rent today, USD/h; the last known one when the market no longer lists the offer."""
        offer = self._offer(slot)
        return slot.usd_per_hour if offer is None else offer.usd_per_hour

    def rate(self, slot: Slot) -> float:
        """Return trained samples/s of one rollout slot: losses, pauses and drops taken off; 0 for a trainer slot.

        A replica's head makes what all of them make, its other machines nothing: they come and go with it.
        """
        if slot.rollout is None or slot.rank > 0:
            return 0.0
        if self._offer(slot) is None:
            return slot.rollout.samples_per_s * (1.0 - self.problem.workload.drop_share) * self.problem.duty
        return self.problem.rate(slot.rollout, self.samples_per_s)

    def _offer(self, slot: Slot) -> Offer | None:
        return self.problem.offers.get(slot.offer_id)

    def usd_per_sample(self, unit: tuple[Slot, ...]) -> float:
        """Return the rent of a rollout machine, or of a replica of several, for each sample/s it makes, USD/h."""
        return sum(map(self.price, unit)) / sum(map(self.rate, unit))

    def rollout_rate(self, slots: tuple[Slot, ...]) -> float:
        """Return samples/s that the rollout slots make together."""
        return sum(self.rate(slot) for slot in slots)

    def train_rate(self, slots: tuple[Slot, ...]) -> float:
        """Return samples/s that the gang trains; 0 when it is not whole."""
        gang = [slot.trainer for slot in slots if slot.trainer is not None]
        return gang[0].samples_per_s * self.problem.duty if gang and len(gang) == gang[0].nodes else 0.0

    def throughput(self, slots: tuple[Slot, ...]) -> float:
        """Return what both pools can do, samples/s: the slower of rollout and trainer."""
        return min(self.rollout_rate(slots), self.train_rate(slots))

    def bill_usd_per_hour(self, slots: tuple[Slot, ...]) -> float:
        """Return what a fleet is billed today, USD/h: rent and egress. The policy's cap is on this."""
        gang = self._gang(slots)
        rent = sum(self.price(slot) for slot in slots)
        return rent + (self._egress_usd_per_hour(gang[0], slots) if gang else 0.0)

    def usd_per_hour(self, slots: tuple[Slot, ...]) -> float:
        """Return what a fleet costs today, USD/h: its bill, and the rent that losses of a spot gang waste."""
        gang = self._gang(slots)
        lost_share = gang_loss_share(gang[0], len(gang), self.problem.market.calibration) if gang else 0.0
        return self.bill_usd_per_hour(slots) + lost_share * sum(self.price(slot) for slot in slots)

    def _gang(self, slots: tuple[Slot, ...]) -> list[Offer]:
        """Return the offers of the trainer's slots in rank order, as far as the market lists them."""
        ranked = sorted((slot for slot in slots if slot.role is Role.TRAINER), key=lambda slot: slot.rank)
        return [offer for slot in ranked if (offer := self._offer(slot)) is not None]

    def _egress_usd_per_hour(self, head: Offer, slots: tuple[Slot, ...]) -> float:
        """One copy of each version goes to every other region, and from its first zone to every further one."""
        regions: dict[Region, dict[str, Offer]] = defaultdict(dict)
        for slot in slots:
            offer = self._offer(slot)
            if slot.role is Role.ROLLOUT and offer is not None:
                regions[offer.cloud, offer.region].setdefault(offer.zone or "", offer)
        bill = 0.0
        for region, zones in regions.items():
            entry = head if region == (head.cloud, head.region) else zones[min(zones)]
            bill += self._copy_usd_per_hour(head, entry)
            bill += sum(self._copy_usd_per_hour(entry, offer) for offer in zones.values())
        return bill

    def _copy_usd_per_hour(self, source: Offer, target: Offer) -> float:
        here, there = ((offer.cloud, offer.region, offer.zone) for offer in (source, target))
        return 0.0 if here == there else self.problem.egress_usd_per_hour(source, target, self.samples_per_s)

    def broken(self, slots: tuple[Slot, ...]) -> dict[str, str]:
        """Return the rules that a fleet of these slots violates: name of the rule -> what is wrong, in words."""
        broken = {}
        made = self.throughput(slots)
        if made < self.samples_per_s * (1 - _TOLERANCE):
            broken["target"] = f"makes {made:.3g} of {self.samples_per_s:.3g} samples/s"
        cost, cap = self.bill_usd_per_hour(slots), self.problem.policy.max_usd_per_hour
        if cap is not None and cost > cap * (1 + _TOLERANCE):
            broken["hourly_budget"] = f"costs {cost:.2f} USD/h, over the cap of {cap:.2f}"
        return broken | self._at_risk(slots)

    def _at_risk(self, slots: tuple[Slot, ...]) -> dict[str, str]:
        rates: dict[str, float] = defaultdict(float)
        full: dict[Tenure, float] = defaultdict(float)
        for slot in slots:
            offer = self._offer(slot)
            if slot.rollout is not None and slot.rank == 0 and offer is not None:
                rates[offer.domain] += self.rate(slot)
                full[offer.tenure] += self.problem.full_rate(slot.rollout)
        total = self.rollout_rate(slots)
        least = self.problem.policy.survival_share * self.samples_per_s * (1 - _TOLERANCE)
        broken = {
            f"survive[{domain}]": f"would not survive the loss of {domain}"
            for domain, rate in sorted(rates.items())
            if total - rate < least
        }
        spot, all_full = full[Tenure.SPOT], sum(full.values())
        if spot > self.problem.policy.max_spot_share * all_full * (1 + _TOLERANCE):
            broken["spot_share"] = f"has {spot / all_full:.0%} of its rollout on spot"
        return broken
