"""useful: what one machine of each column is worth at one throughput, and how many a cheapest plan can hold at most.

The limits only tighten the model: no cheapest plan is lost, and its relaxation comes close to whole machines.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hexcloud.estimate.freshness import versions_allowed
from hexcloud.estimate.rollout import pause_share, reload_s
from hexcloud.planner.gangs import Site
from hexcloud.planner.problem import S_PER_H, Problem
from hexcloud.planner.table import Flags, Floats

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Useful:
    """Arrays over `problem.rollout` at one throughput, or over a range of throughputs as if they were at its low end.

    Pauses, reach and egress only get worse as throughput grows, so over a range they are a relaxation.
    """

    problem: Problem
    samples_per_s: float
    up_to: float | None = None
    """High end of the range; None: one throughput."""

    @property
    def top(self) -> float:
        """Return the largest throughput in question."""
        return self.samples_per_s if self.up_to is None else self.up_to

    @property
    def reward_vcpus(self) -> float:
        """Return the cores that rewards keep busy at most."""
        return self.top * self.problem.workload.reward_cpu_s_per_sample

    @cached_property
    def rates(self) -> Floats:
        """Trained samples/s of one machine: losses, pauses and drops taken off. As `Problem.rate`, for all columns."""
        problem, table = self.problem, self.problem.table
        degrees, number = table.degrees
        step_s = problem.step_s(self.samples_per_s)
        running = np.array([1.0 - pause_share(problem.workload, tp, step_s) for tp in degrees], np.float64)
        working = table.availability * running[number]
        rates: Floats = table.samples_per_s * working * (1.0 - problem.workload.drop_share) * problem.duty
        return rates

    @cached_property
    def made(self) -> Floats:
        """Rates as far as they count: one machine that makes ten times the target makes the target."""
        return np.minimum(self.rates, self.top)

    @cached_property
    def surviving(self) -> Floats:
        """Rates as far as they count where a domain is lost."""
        return np.minimum(self.rates, self.problem.policy.survival_share * self.top)

    @cached_property
    def cores(self) -> Floats:
        """Cores left for rewards as far as they count."""
        return np.minimum(self.problem.table.cores, self.reward_vcpus)

    @cached_property
    def slowest(self) -> Floats:
        """Least samples/s of one machine in any column of its offer."""
        table = self.problem.table
        least = np.full(int(table.offer.max(initial=-1)) + 1, np.inf)
        np.minimum.at(least, table.offer, self.rates)
        slowest: Floats = least[table.offer]
        return slowest

    @cached_property
    def farthest_s(self) -> Floats:
        """Longest way of the weights from which samples are still young enough, seconds; negative: none is.

        As `freshness.farthest_s`, for all columns.
        """
        workload, table = self.problem.workload, self.problem.table
        degrees, number = table.degrees
        step_s = self.problem.step_s(self.samples_per_s)
        reloads = np.array([reload_s(workload, tp) for tp in degrees], np.float64)[number]
        left = versions_allowed(workload) * step_s - table.generation_s - reloads
        farthest: Floats = np.minimum(left, (left + step_s) / 2.0)
        return farthest

    @cached_property
    def is_near(self) -> Flags:
        """Columns that would be in reach of a trainer next to them, and make anything."""
        return (self.farthest_s >= 0.0) & (self.rates > 0.0)

    @cached_property
    def need(self) -> Floats:
        """How many machines of a column are enough, whatever the stock; infinity when nobody knows.

        Were there one more, the others of the column would make T and the cores for rewards by themselves, so one
        could go. Only the spot share can forbid that, and then a spot machine could go instead.
        """
        table, share = self.problem.table, self.problem.policy.max_spot_share
        is_base = ~table.is_spot if 0 < share < 1 else np.zeros(len(table), np.bool_)
        needed = np.where(is_base, self._base_rate(share) if 0 < share < 1 else 0.0, self.top)
        with np.errstate(divide="ignore", invalid="ignore"):
            for_rate = needed / self.rates
            for_cores = np.where(table.cores > 0, self.reward_vcpus / table.cores, 0.0)
        machines = np.ceil(np.maximum(for_rate, for_cores) - _ROUNDING)
        is_unknown = (self.rates <= 0) | (is_base & (table.cores <= 0))
        need: Floats = np.where(is_unknown, np.inf, np.maximum(1.0, machines))
        return need

    @cached_property
    def most(self) -> Floats:
        """The most machines of a column in a cheapest plan, a whole number."""
        return np.minimum(self.need, self.problem.table.stock)

    def _base_rate(self, spot_share: float) -> float:
        """On-demand rollout beyond which spot machines beside it are more than any rule asks for."""
        survivors = self.problem.policy.survival_share * self.top
        largest_spot = float(np.max(self.rates[self.problem.table.is_spot], initial=0.0))
        return max(self.top, (1.0 - spot_share) / spot_share * (survivors + largest_spot))

    def in_reach(self, site: Site) -> Flags:
        """Which columns can weights reach in time from a site?"""
        in_reach: Flags = self.is_near & (self.problem.ways(site).travel_s <= self.farthest_s)
        return in_reach

    def egress_usd_per_hour(self, site: Site) -> Floats:
        """What one copy of every version costs into each column's region; 0 at home."""
        egress: Floats = self.problem.ways(site).usd_per_version * S_PER_H / self.problem.step_s(self.samples_per_s)
        return egress
