"""useful: how many machines of one column a cheapest plan can hold at most, and how much of one machine counts.

Both only tighten the model: no cheapest plan is lost, and its relaxation comes close to whole machines.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from hexcloud.domain.offer import OfferId, Tenure
from hexcloud.domain.plan import RolloutColumn
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Useful:
    """Bounds of one problem at one throughput, with the columns a plan may use."""

    problem: Problem
    samples_per_s: float
    columns: tuple[RolloutColumn, ...]

    @property
    def reward_vcpus(self) -> float:
        """Return the cores that rewards keep busy."""
        return self.samples_per_s * self.problem.workload.reward_cpu_s_per_sample

    @cached_property
    def rates(self) -> dict[RolloutColumn, float]:
        """Trained samples/s of one instance of each column."""
        return {column: self.problem.rate(column, self.samples_per_s) for column in self.columns}

    @cached_property
    def slowest(self) -> dict[OfferId, float]:
        """Least samples/s of one instance in any column of its offer."""
        offers = {column.offer_id for column in self.columns}
        slowest: dict[OfferId, float] = {}
        for column in self.problem.rollout:
            if column.offer_id in offers:
                rate = self.problem.rate(column, self.samples_per_s)
                slowest[column.offer_id] = min(rate, slowest.get(column.offer_id, rate))
        return slowest

    def most(self, column: RolloutColumn) -> int:
        """Return the most machines of a column in a cheapest plan."""
        return int(min(self.need(column), self.problem.stock[column.offer_id]))

    def need(self, column: RolloutColumn) -> float:
        """Return how many machines of a column are enough, whatever the stock; infinity when nobody knows.

        Were there one more, the others of the column would make T and the cores for rewards by themselves, so one
        could go. Only the spot share can forbid that, and then a spot machine could go instead.
        """
        rate, vcpus = self.rates[column], self.problem.reward_vcpus(column)
        share = self.problem.policy.max_spot_share
        is_base = self.problem.offers[column.offer_id].tenure is Tenure.ON_DEMAND and 0 < share < 1
        if rate <= 0 or (is_base and vcpus <= 0):
            return INFINITY
        needed = self._base_rate(share) if is_base else self.samples_per_s
        machines = max(needed / rate, self.reward_vcpus / vcpus if vcpus > 0 else 0.0)
        return max(1.0, math.ceil(machines - _ROUNDING))

    def _base_rate(self, spot_share: float) -> float:
        """On-demand rollout beyond which spot machines beside it are more than any rule asks for."""
        survivors = self.problem.policy.survival_share * self.samples_per_s
        return max(self.samples_per_s, (1.0 - spot_share) / spot_share * (survivors + self._largest_spot_rate))

    @cached_property
    def _largest_spot_rate(self) -> float:
        offers = self.problem.offers
        spot = (rate for column, rate in self.rates.items() if offers[column.offer_id].tenure is Tenure.SPOT)
        return max(spot, default=0.0)
