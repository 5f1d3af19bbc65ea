"""greedy: what a buyer picks who takes the best dollars per sample, machine by machine, until every rule is kept.

The trainer is the cheapest gang that is fast enough; rollout machines follow by rent and start-up per sample. No pick
is ever taken back, and nothing looks at egress: that is what the MILP is better at.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import Columns, RolloutColumn, TrainerColumn
from hexcloud.estimate.transfer import transfer_s
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.useful import Useful

_MOST_PICKS = 1_000
"""More machines than any buyer can watch: the rules then cannot be kept at all."""


def greedy_columns(problem: Problem, samples_per_s: float) -> Columns:
    """Return the gang that a greedy buyer takes and every way to use his rollout machines; nothing when none trains."""
    able = problem.gang_table.between(samples_per_s, samples_per_s)
    if not len(able):
        return Columns(rollout=(), trainer=())
    (gang,) = able[np.argsort(able.usd_per_hour, kind="stable")[:1]].columns
    taken = _Basket(problem, samples_per_s, gang).fill()
    rollout = (column for name in sorted(taken) for column in problem.kinds.rollout_of(name))
    return Columns(rollout=tuple(rollout), trainer=(gang,))


@dataclass
class _Basket:
    """What the buyer holds so far."""

    problem: Problem
    samples_per_s: float
    gang: TrainerColumn
    held: Counter[OfferId] = field(default_factory=Counter)
    rates: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Samples/s in each failure domain."""
    spot_rate: float = 0.0

    def fill(self) -> set[OfferId]:
        """Take machines until the target, survival and the spot share are kept, or nothing is left that helps."""
        taken: set[OfferId] = set()
        ranked = self._ranked()
        self.held[self.gang.offer_id] = self.gang.nodes
        for _ in range(_MOST_PICKS):
            best = next((column for column in ranked if self._helps(column) and self._is_left(column)), None)
            if best is None:
                break
            taken.add(best.offer_id)
            self._take(best)
        return taken

    def _ranked(self) -> list[RolloutColumn]:
        """Return the columns in reach of the gang, the least USD per sample first."""
        travel_s = {name: self._travel_s(offer) for name, offer in self.problem.offers.items()}
        useful = Useful(self.problem, self.samples_per_s, is_eased=True)
        reached = (
            column
            for column in map(useful.column, range(len(useful.table)))
            if self.problem.is_young_enough(column, travel_s[column.offer_id], self.samples_per_s)
        )
        return sorted(reached, key=lambda column: (self._usd_per_sample(column), column.offer_id, column.batch))

    def _travel_s(self, offer: Offer) -> float:
        """Return how long a version of the weights travels from the gang to an offer."""
        source, problem = self.problem.offers[self.gang.offer_id], self.problem
        gb_per_s = forecast_gb_per_s(source, offer, problem.market.network)
        return transfer_s(problem.workload.version_bytes, gb_per_s)

    def _usd_per_sample(self, column: RolloutColumn) -> float:
        offer = self.problem.offers[column.offer_id]
        rate = self.problem.rate(column, self.samples_per_s)
        price = column.nodes * (offer.usd_per_hour + self.problem.new_machine_usd_per_hour(offer))
        return price / rate if rate > 0 else INFINITY

    def _is_left(self, column: RolloutColumn) -> bool:
        return self.held[column.offer_id] + column.nodes <= self.problem.stock[column.offer_id]

    def _helps(self, column: RolloutColumn) -> bool:
        """Would one more machine of a column bring the basket nearer to a rule that it still breaks?"""
        offer, policy = self.problem.offers[column.offer_id], self.problem.policy
        made = sum(self.rates.values())
        if made < self.samples_per_s:
            return True
        worst = max(self.rates, key=lambda domain: self.rates[domain])
        if made - self.rates[worst] < policy.survival_share * self.samples_per_s:
            return offer.domain != worst
        return self.spot_rate > policy.max_spot_share * made and offer.tenure is Tenure.ON_DEMAND

    def _take(self, column: RolloutColumn) -> None:
        offer, rate = self.problem.offers[column.offer_id], self.problem.rate(column, self.samples_per_s)
        self.held[column.offer_id] += column.nodes
        self.rates[offer.domain] += rate
        self.spot_rate += rate if offer.tenure is Tenure.SPOT else 0.0
