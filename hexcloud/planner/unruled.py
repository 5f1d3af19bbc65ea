"""unruled: a problem without some of its rules, to find out which of them clash.

A rule is a named row of the MILP, or something for which `screen` turns offers away. Each has one dial that makes it
mean nothing: a wish of the policy, a limit of the market, or a speed that could not be in the way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import LARGEST_GANG, build_columns
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen

_FAST = 1e6
"""How many times faster machines are that could not be in the way."""
_LONG_AGO_S = -1e9
"""Generation time of samples that are young whatever the way of their weights."""
_DEEP = 10_000
"""Machines of an offer where depth is no rule."""
QUOTA = "quota["

_POLICY: dict[str, dict[str, object]] = {
    "gang_size": {"max_gang_nodes": LARGEST_GANG},
    "spot_trainer": {"spot_trainer": True},
    "unproven": {"try_unproven": True},
    "price_age": {"max_price_age_h": None, "max_live_price_age_h": None},
    "pools": {"max_pools": None},
    "spot_share": {"max_spot_share": 1.0},
    "survive": {"survival_share": 0.0},
    "gpu": {"gpus": ()},
    "region": {"regions": ()},
    "cloud": {"clouds": ()},
    "stock": {"max_nodes_per_pool": _DEEP},
    "hourly_budget": {"max_usd_per_hour": None},
}
"""Rule -> what a policy says that does not know it."""
_LISTED = ("gang_size", "spot_trainer", "unproven", "price_age", "gpu", "region", "cloud", "stock", "sold_out")
"""Rules without which more offers, or larger gangs, are looked at; beside them `spot_share` and quotas."""


@dataclass(frozen=True)
class Ruled:
    """A problem with the names of the rules that can be taken from it."""

    problem: Problem
    is_market: bool = True
    """Do the columns come from the market as `screen` sees it? Else no rule's absence adds any."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the rules that say anything, those first that a user can do least about."""
        problem = self.problem
        policy = problem.policy
        quotas = [f"{QUOTA}{key}]" for key in sorted(problem.quotas)]
        says = {
            "reward_cpu": problem.workload.reward_cpu_s_per_sample > 0,
            "in_flight": True,
            "staleness_reach": True,
            "stock": True,
            "sold_out": self.is_market and bool(problem.fleet.sold_out),
            "unproven": self.is_market and not policy.try_unproven,
            "price_age": self.is_market and (policy.max_price_age_h or policy.max_live_price_age_h) is not None,
            "gang_size": self.is_market and policy.max_gang_nodes < LARGEST_GANG,
            "spot_trainer": self.is_market and not policy.spot_trainer,
            "pools": policy.max_pools is not None,
            "spot_share": policy.max_spot_share < 1,
            "survive": policy.survival_share > 0,
            "gpu": self.is_market and bool(policy.gpus),
            "region": self.is_market and bool(policy.regions),
            "cloud": self.is_market and bool(policy.clouds),
        }
        last = {"require": bool(problem.require), "rollout_rate": True, "train_rate": True}
        last |= {"hourly_budget": policy.max_usd_per_hour is not None}
        return tuple(
            [
                *(name for name, is_said in says.items() if is_said),
                *quotas,
                *(name for name, is_said in last.items() if is_said),
            ]
        )

    def turned_away(self, name: str) -> int:
        """Return how many offers could be looked at without one rule that cannot be with it."""
        there, here = (_offers(problem) for problem in (self.without([name]), self.problem))
        return len(there) - len(here)

    def without(self, names: Iterable[str]) -> Problem:
        """Return the problem without these rules."""
        gone = set(names)
        problem = self.problem
        policy, market = _policy(problem.policy, gone), _market(problem.market, gone)
        workload = _workload(problem.workload, gone)
        fleet = problem.fleet.model_copy(update={"sold_out": {}}) if "sold_out" in gone else problem.fleet
        columns = problem.kinds
        if self.is_market and gone & {*_LISTED, "spot_share", *(name for name in gone if name.startswith(QUOTA))}:
            offers = screen(market, workload, policy, fleet).offers
            columns, _ = build_columns(offers, market, workload, policy)
        require = frozenset() if "require" in gone else problem.require
        changed = replace(problem, market=market, workload=workload, policy=policy, fleet=fleet, require=require)
        return replace(changed, columns=_columns(columns, gone))


def _offers(problem: Problem) -> tuple[Offer, ...]:
    return screen(problem.market, problem.workload, problem.policy, problem.fleet).offers


def _policy(policy: Policy, gone: set[str]) -> Policy:
    changes: dict[str, object] = {}
    for rule in gone & _POLICY.keys():
        changes |= _POLICY[rule]
    return policy.model_copy(update=changes)


def _market(market: Market, gone: set[str]) -> Market:
    quotas = tuple(quota for quota in market.quotas if f"{QUOTA}{quota.key}]" not in gone)
    deep = tuple(offer.twin(stock=None) for offer in market.offers) if "stock" in gone else market.offers
    return market.model_copy(update={"quotas": quotas, "offers": deep})


def _workload(workload: Workload, gone: set[str]) -> Workload:
    return workload.model_copy(update={"reward_cpu_s_per_sample": 0.0}) if "reward_cpu" in gone else workload


def _columns(columns: Kinds, gone: set[str]) -> Kinds:
    rollout: dict[str, object] = {}
    if "in_flight" in gone:
        rollout["replicas"] = 0
    if "staleness_reach" in gone:
        rollout["generation_s"] = _LONG_AGO_S
    speed = _FAST if "rollout_rate" in gone else 1.0
    faster = _FAST if "train_rate" in gone else 1.0
    return altered(
        columns,
        lambda one: one.twin(samples_per_s=one.samples_per_s * speed, **rollout),
        lambda gang: gang.twin(samples_per_s=gang.samples_per_s * faster),
    )


def altered(
    kinds: Kinds,
    rollout: Callable[[RolloutColumn], RolloutColumn],
    trainer: Callable[[TrainerColumn], TrainerColumn],
) -> Kinds:
    """Return columns of which every one is another."""
    return replace(
        kinds,
        ladders=tuple(tuple(map(rollout, ladder)) for ladder in kinds.ladders),
        crews=tuple(tuple(map(trainer, crew)) for crew in kinds.crews),
    )
