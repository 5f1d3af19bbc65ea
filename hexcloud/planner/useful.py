"""useful: the rollout columns that count at one throughput, what a machine of each is worth there, and how many are
enough.

All columns of an offer that take as many machines share price, stock, domain and quota. So one goes when another is in
reach wherever it is, makes no less and fills no more slots: no cheapest plan is lost, whatever the throughput that is
tried.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hexcloud.domain.plan import RolloutColumn
from hexcloud.estimate.freshness import versions_allowed
from hexcloud.estimate.rollout import pause_share, reload_s
from hexcloud.planner.gangs import Site
from hexcloud.planner.problem import S_PER_H, Problem
from hexcloud.planner.table import Flags, Floats, Table

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Useful:
    """Arrays over `table` at one throughput, or over a range of throughputs as if they were at its low end.

    Pauses, reach and egress only get worse as throughput grows, so over a range they are a relaxation.
    """

    problem: Problem
    samples_per_s: float
    up_to: float | None = None
    """High end of the range; None: one throughput."""
    is_eased: bool = False
    """For models with two rules eased, in which only the fastest columns count: slots in flight are not counted, and
    of the spot share is left that on-demand machines could make the rest. Every plan is one of the eased model too."""

    @property
    def top(self) -> float:
        """Return the largest throughput in question."""
        return self.samples_per_s if self.up_to is None else self.up_to

    @property
    def reward_vcpus(self) -> float:
        """Return the cores that rewards keep busy at most."""
        return self.top * self.problem.workload.reward_cpu_s_per_sample

    @property
    def shares_spot(self) -> bool:
        """Return whether the policy mixes spot and on-demand rollout in a certain proportion."""
        return self.problem.policy.max_spot_share < 1.0

    @cached_property
    def exact(self) -> "Useful":
        """The same with no rule eased."""
        return replace(self, is_eased=False)

    @cached_property
    def table(self) -> Table:
        """The columns that count, as rows. All there are, where the problem keeps all."""
        problem, rungs = self.problem, self.problem.rungs
        if problem.keeps_all:
            return problem.table
        near = self._is_near_rung
        # Of the distances only those count that a trainer may have.
        within = np.searchsorted(problem.travels_s, self._rung_farthest_s, side="right").astype(np.float64)
        worths = [self._rung_rates, within]
        if self.shares_spot:
            worths.append(rungs.samples_per_s)
        if self.is_eased:
            return problem.rows(rungs.best(near, *worths))
        best = rungs.best(near, *worths, -rungs.slots)
        if not self.shares_spot:
            return problem.rows(best)
        table = problem.rows(near)  # a slower spot machine takes less of the share
        kept = np.flatnonzero(best[table.rung] | table.is_spot)
        return Table(table.facts, table.rungs, table.offer[kept], table.rung[kept])

    def column(self, row: int) -> RolloutColumn:
        """Return the column of a row."""
        table = self.table
        offer = table.facts.rows[int(table.offer[row])].offer
        return table.rungs.columns[int(table.rung[row])].twin(offer_id=offer.id)

    @cached_property
    def _rung_rates(self) -> Floats:
        """Trained samples/s of one unit of every kind that always works, pauses taken off."""
        problem, rungs = self.problem, self.problem.rungs
        step_s = problem.step_s(self.samples_per_s)
        running = np.array([1.0 - pause_share(problem.workload, tp, step_s) for tp in rungs.degrees])
        rates: Floats = self._full * rungs.samples_per_s * running[rungs.degree]
        return rates

    @property
    def _full(self) -> float:
        return (1.0 - self.problem.workload.drop_share) * self.problem.duty

    @cached_property
    def _rung_farthest_s(self) -> Floats:
        """As `farthest_s`, by kind, to the first machine of a unit."""
        workload, rungs = self.problem.workload, self.problem.rungs
        step_s = self.problem.step_s(self.samples_per_s)
        reloads = np.array([reload_s(workload, tp) for tp in rungs.degrees])[rungs.degree]
        left = versions_allowed(workload) * step_s - rungs.generation_s - reloads
        farthest: Floats = np.minimum(left, (left + step_s) / 2.0) - rungs.spread_s
        return farthest

    @cached_property
    def _is_near_rung(self) -> Flags:
        return (self._rung_farthest_s >= 0.0) & (self._rung_rates > 0.0)

    def least_usd_per_sample_s(self) -> float:
        """Return the least price of rollout per sample/s at any throughput from the low end on, USD/h."""
        problem, facts = self.problem, self.problem.facts
        by_machine = self._rung_rates / problem.rungs.nodes
        rates = problem.rungs.most(self._is_near_rung, by_machine)[problem.ladders] * facts.availability
        able = (rates > 0.0) & (facts.stock > 0)
        return float((facts.price[able] / rates[able]).min(initial=np.inf))

    @cached_property
    def rates(self) -> Floats:
        """Trained samples/s of one unit: losses, pauses and drops taken off. As `Problem.rate`, for all columns."""
        rates: Floats = self._rung_rates[self.table.rung] * self.table.availability
        return rates

    @cached_property
    def full_rates(self) -> Floats:
        """Trained samples/s between pauses. As `Problem.full_rate`, for all columns."""
        rates: Floats = self._full * self.table.samples_per_s * self.table.availability
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
    def staying(self) -> Floats:
        """Full rates of on-demand machines, as far as they count for what spot machines may not make; 0 of spot."""
        most = (1.0 - self.problem.policy.max_spot_share) * self.top
        return np.where(self.table.is_spot, 0.0, np.minimum(self.full_rates, most))

    @cached_property
    def cores(self) -> Floats:
        """Cores left for rewards as far as they count."""
        return np.minimum(self.table.cores, self.reward_vcpus)

    @cached_property
    def farthest_s(self) -> Floats:
        """Longest way of the weights from which samples are still young enough, seconds; negative: none is.

        As `freshness.farthest_s`, for all columns.
        """
        return self._rung_farthest_s[self.table.rung]

    @cached_property
    def is_near(self) -> Flags:
        """Columns that would be in reach of a trainer next to them, and make anything."""
        return (self.farthest_s >= 0.0) & (self.rates > 0.0)

    @cached_property
    def need(self) -> Floats:
        """How many units of a column are enough, whatever the stock; infinity when nobody knows.

        Were there one more, the others of the column would make T and the cores for rewards by themselves, so one
        could go. Only the spot share can forbid that, and then a spot machine could go instead.
        """
        table, share = self.table, self.problem.policy.max_spot_share
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
        """The most units of a column in a cheapest plan, a whole number."""
        return np.minimum(self.need, self.table.stock)

    def _base_rate(self, spot_share: float) -> float:
        """On-demand rollout beyond which spot machines beside it are more than any rule asks for.

        The spot share counts full rates, survival counts what is left of them beside pauses.
        """
        survivors = self.problem.policy.survival_share * self.top
        near = self._is_near_rung
        rates, full = self._rung_rates[near], self._full * self.problem.rungs.samples_per_s[near]
        most_spot = (survivors + float(rates.max(initial=0.0))) * float((full / rates).max(initial=1.0))
        return max(self.top, (1.0 - spot_share) / spot_share * most_spot)

    def in_reach(self, site: Site) -> Flags:
        """Which columns can weights reach in time from a site?"""
        travel_s = self.problem.ways(site).travel_s[self.table.offer]
        in_reach: Flags = self.is_near & (travel_s <= self.farthest_s)
        return in_reach

    def egress_usd_per_hour(self, site: Site) -> Floats:
        """What one copy of every version costs into each column's region; 0 at home."""
        usd_per_version = self.problem.ways(site).usd_per_version[self.table.offer]
        egress: Floats = usd_per_version * S_PER_H / self.problem.step_s(self.samples_per_s)
        return egress
