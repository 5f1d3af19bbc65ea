"""pairs: what a plan of at most two offers costs at least at a site, and which offers such a plan may hold.

A row that counts offers is no help to a relaxation, which uses a hundredth of a hundred. But where there may be two,
one is the trainer's, so the other is the only choice: for every gang, and every number of its offer's machines that
roll out beside it, it is known what one other offer must make, and so how many machines of it that takes. Slots in
flight, quotas and zones are not looked at, and machines are as fast as the fastest column in reach: so it bounds every
plan from below.
"""

import functools
import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hexcloud.planner.gangs import Ranked
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import S_PER_H, Problem
from hexcloud.planner.table import Flags, Floats, Ints
from hexcloud.planner.useful import Useful

_TWO = 2
_ROUNDING = 1e-9
_NOTHING = 1e-300
"""Stands for a rate of zero: whatever must be made takes more machines than there are."""
_LARGEST = 4_000_000
"""Entries of the table of one site, some 30 MB an array; where there would be more, nothing is ruled out."""


class Pairs(NamedTuple):
    """A lower bound on any plan at a site, USD/h, and what a plan under a ceiling may hold."""

    usd_per_hour: float
    offers: Flags
    """By number: offers that may roll out."""
    gangs: Flags
    """Of the site's gangs: those that may train."""


class _Needs(NamedTuple):
    """What all rollout must reach, and by offer what one machine contributes."""

    targets: tuple[float, ...]
    """Throughput, on-demand throughput, cores for rewards."""
    worths: tuple[Floats, ...]
    survivors: float
    """Samples/s that must be left without either offer."""

    def left(self, offer: Ints, machines: Floats) -> list[Floats]:
        """Return what is left to reach beside so many machines of some offers."""
        return [
            np.maximum(0.0, target - machines * worth[offer])
            for target, worth in zip(self.targets, self.worths, strict=True)
        ]


class _Options(NamedTuple):
    """A gang of the site by its row, and how many machines of its offer roll out beside it."""

    gang: Ints
    offer: Ints
    machines: Floats
    usd_per_hour: Floats


def is_narrow(problem: Problem) -> bool:
    """Are there so few offers in a plan that it is worth trying all pairs?"""
    return problem.policy.max_pools is not None and problem.policy.max_pools <= _TWO and not problem.keeps_all


def pairs_at(useful: Useful, ranked: Ranked, ceiling: float) -> Pairs:
    """Return the bound on plans of eased columns with a gang of a site, and what those under the ceiling may hold."""
    offers = len(useful.table.facts)
    needs = _needs(useful, ranked)
    options = _options(useful, ranked, needs)
    if len(options.gang) * offers > _LARGEST:
        return Pairs(ranked.least_usd_per_hour, np.ones(offers, np.bool_), np.ones(len(ranked.able), np.bool_))
    alone = _alone(needs, options)
    prices = np.full((len(options.gang), offers), INFINITY)
    if useful.problem.policy.max_pools == _TWO:
        prices = _prices(useful, ranked, needs, options)
    if useful.problem.require:
        is_asked = np.array([name in useful.problem.require for name in useful.problem.offer_numbers])
        alone[~is_asked[options.offer]] = INFINITY
        prices[~(is_asked[options.offer][:, None] | is_asked)] = INFINITY
    is_open = prices < ceiling
    any_open = np.any(is_open, axis=1) | (alone < ceiling)
    may_roll_out, may_train = np.zeros(offers, np.bool_), np.zeros(len(ranked.able), np.bool_)
    may_roll_out[is_open.nonzero()[1]] = True
    may_roll_out[options.offer[any_open]] = True
    may_train[options.gang[any_open]] = True
    least = min(float(prices.min(initial=INFINITY)), float(alone.min(initial=INFINITY)))
    return Pairs(least, may_roll_out, may_train)


def cheapest_first(
    useful: Useful, sites: tuple[Ranked, ...], rollout_usd_per_hour: float
) -> Iterator[tuple[float, Ranked]]:
    """Yield sites with what any plan there costs at least, USD/h, the cheapest first.

    That is rollout and the site's cheapest gang, by which the sites come sorted; or its cheapest pair, which is told
    only for sites whose turn it is.
    """
    is_done = not is_narrow(useful.problem)
    waiting = [
        (rollout_usd_per_hour + ranked.least_usd_per_hour, number, is_done) for number, ranked in enumerate(sites)
    ]
    while waiting:
        lower, number, is_tight = heapq.heappop(waiting)
        if is_tight:
            yield lower, sites[number]
        else:
            tight = max(lower, pairs_at(useful, sites[number], 0.0).usd_per_hour)
            heapq.heappush(waiting, (tight, number, True))


def _needs(useful: Useful, ranked: Ranked) -> _Needs:
    problem, table = useful.problem, useful.table
    near = useful.in_reach(ranked.site)
    offer, machines = table.offer[near], table.nodes[near]

    def fastest(rates: Floats) -> Floats:
        best = np.zeros(len(table.facts))
        np.maximum.at(best, offer, rates[near] / machines)
        return best

    on_demand = np.where(table.is_spot, 0.0, useful.full_rates)
    slack = max((left for name, left in problem.slack.items() if name.startswith("survive[")), default=0.0)
    return _Needs(
        targets=(
            useful.samples_per_s,
            (1.0 - problem.policy.max_spot_share) * useful.samples_per_s,
            useful.reward_vcpus,
        ),
        worths=(fastest(useful.rates), fastest(on_demand), table.facts.cores),
        survivors=max(0.0, problem.policy.survival_share * useful.samples_per_s - slack),
    )


def _options(useful: Useful, ranked: Ranked, needs: _Needs) -> _Options:
    """Return every gang with every number of machines beside it that there is stock for, and that is of any use."""
    facts, able = useful.table.facts, ranked.able
    left = facts.stock[able.offer] - able.nodes
    enough = _machines(needs.left(able.offer, np.zeros(len(able))), [worth[able.offer] for worth in needs.worths])
    most = np.where(needs.worths[0][able.offer] > 0.0, np.maximum(0.0, np.minimum(left, enough)), 0.0).astype(np.int64)
    gang = np.repeat(np.arange(len(able)), most + 1)
    machines = (np.arange(len(gang)) - np.repeat(np.cumsum(most + 1) - (most + 1), most + 1)).astype(np.float64)
    offer = able.offer[gang]
    return _Options(gang, offer, machines, able.usd_per_hour[gang] + machines * facts.price[offer])


def _machines(left: list[Floats], worths: list[Floats]) -> Floats:
    """Return how many machines reach all that is left."""
    with np.errstate(over="ignore"):
        counts = [lack / np.maximum(worth, _NOTHING) for lack, worth in zip(left, worths, strict=True)]
    machines: Floats = np.ceil(functools.reduce(np.maximum, counts) - _ROUNDING)
    return machines


def _alone(needs: _Needs, options: _Options) -> Floats:
    """Return the price of every option without a second offer; infinite where that is not enough."""
    left = needs.left(options.offer, options.machines)
    is_enough = np.all(
        [lack <= _ROUNDING * max(1.0, target) for lack, target in zip(left, needs.targets, strict=True)], axis=0
    )
    return np.where(is_enough & (needs.survivors == 0.0), options.usd_per_hour, INFINITY)


def _prices(useful: Useful, ranked: Ranked, needs: _Needs, options: _Options) -> Floats:
    """Return the least price of every option with every second offer beside it; infinite where it cannot be."""
    facts = useful.table.facts
    left = [lack[:, None] for lack in needs.left(options.offer, options.machines)]
    second = _machines([*left, np.full((1, 1), needs.survivors)], [*needs.worths, needs.worths[0]])
    egress = useful.problem.ways(ranked.site).usd_per_version * S_PER_H / useful.problem.step_s(useful.samples_per_s)
    prices: Floats = options.usd_per_hour[:, None] + second * facts.price + np.where(second > 0.0, egress, 0.0)
    prices[second > facts.stock] = INFINITY
    prices[np.arange(len(prices)), options.offer] = INFINITY
    if needs.survivors > 0.0:
        _, domain = facts.domains
        prices[domain == domain[options.offer][:, None]] = INFINITY
        prices[options.machines * needs.worths[0][options.offer] < needs.survivors * (1.0 - _ROUNDING)] = INFINITY
    return prices
