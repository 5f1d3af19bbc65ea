"""dials: how each rule is made looser by one unit of its own, and how the problem reads then.

A rate is made looser by faster machines: R * k >= T with k = T / (T - u) is R >= T - u. Rules beside it stay what they
are: what must survive is a share of T, so the share grows by the same k.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hexcloud.domain.offer import OfferId
from hexcloud.domain.policy import Objective
from hexcloud.planner.listed import listed
from hexcloud.planner.problem import Problem
from hexcloud.planner.unruled import altered

_THOUSAND = 1000.0
_SMALL = 0.1
"""Share of the throughput that a step takes where a thousand tok/s are more."""
_PER_CENT = 0.01
_MOST_SHARE = 0.999


@dataclass(frozen=True)
class Turned:
    """A problem with one rule looser."""

    problem: Problem
    step: float
    """Units by which it is looser."""
    unit: str
    change: str
    """The step in words."""


Dial = Callable[["Stand", str], Turned | None]


@dataclass(frozen=True)
class Stand:
    """A problem, and the throughput of the plan that is asked about."""

    problem: Problem
    samples_per_s: float

    @property
    def tokens_per_s(self) -> float:
        """Return the throughput in the user's unit."""
        return self.samples_per_s * self.problem.workload.tokens_per_sample

    @property
    def step_tokens_per_s(self) -> float:
        """Return how much throughput a step is: a thousand tok/s, or a tenth of it all."""
        return min(_THOUSAND, self.tokens_per_s * _SMALL)

    @property
    def step_samples_per_s(self) -> float:
        """Return the same in samples/s."""
        return self.step_tokens_per_s / self.problem.workload.tokens_per_sample

    @property
    def faster(self) -> float:
        """Return the factor that stands for a step."""
        step = self.step_samples_per_s
        if self.problem.policy.objective is Objective.MIN_COST:
            return self.samples_per_s / (self.samples_per_s - step)
        return (self.samples_per_s + step) / self.samples_per_s

    def with_policy(self, **changes: object) -> Problem:
        """Return the problem under other wishes: other offers may be looked at then."""
        problem = self.problem
        return _again(problem, policy=problem.policy.model_copy(update=changes))

    def turned(self, problem: Problem, what: str) -> Turned:
        """Return a problem that is looser by a step of throughput."""
        tokens = self.step_tokens_per_s
        return Turned(problem, tokens / _THOUSAND, "1000 tok/s", f"{tokens:.0f} tok/s {what}")


def turn(rule: str, stand: Stand) -> Turned | None:
    """Return the problem with a rule looser by a unit; None for rules that have no dial."""
    kind, _, name = rule.partition("[")
    dial = _DIALS.get(kind)
    return None if dial is None else dial(stand, name.removesuffix("]"))


def _again(problem: Problem, **changes: object) -> Problem:
    """Return the problem that a market poses after changes; the plan must hold what it had to."""
    new = replace(problem, **changes)  # type: ignore[arg-type]
    return replace(listed(new.market, new.workload, new.policy, new.fleet), require=problem.require)


def _target(stand: Stand, _: str) -> Turned | None:
    target = stand.problem.policy.target_samples_per_s
    if target is None:
        return None
    return stand.turned(stand.with_policy(target_samples_per_s=target - stand.step_samples_per_s), "less to make")


def _train_rate(stand: Stand, _: str) -> Turned:
    k = stand.faster
    columns = altered(
        stand.problem.kinds, lambda one: one, lambda gang: gang.twin(samples_per_s=gang.samples_per_s * k)
    )
    return stand.turned(replace(stand.problem, columns=columns), "less to train, as much to roll out")


def _rollout_rate(stand: Stand, _: str) -> Turned:
    k, policy = stand.faster, stand.problem.policy
    columns = altered(stand.problem.kinds, lambda one: one.twin(samples_per_s=one.samples_per_s * k), lambda one: one)
    share = min(policy.survival_share * k, max(policy.survival_share, _MOST_SHARE))
    policy = policy.model_copy(update={"survival_share": share})
    problem = replace(stand.problem, columns=columns, policy=policy)
    return stand.turned(problem, "less to roll out, as much to train")


def _survive(stand: Stand, domain: str) -> Turned:
    slack = {f"survive[{domain}]": stand.step_samples_per_s}
    return stand.turned(replace(stand.problem, slack=slack), f"less to remain when {domain} is lost")


def _budget(stand: Stand, _: str) -> Turned | None:
    cap = stand.problem.policy.max_usd_per_hour
    if cap is None:
        return None
    return Turned(stand.with_policy(max_usd_per_hour=cap + 1.0), 1.0, "USD/h", "a cap 1 USD/h higher")


def _spot(stand: Stand, _: str) -> Turned:
    share = min(1.0, stand.problem.policy.max_spot_share + _PER_CENT)
    problem = stand.with_policy(max_spot_share=share)
    return Turned(problem, 1.0, "percentage point", f"up to {share:.0%} of rollout on spot")


def _pools(stand: Stand, _: str) -> Turned | None:
    most = stand.problem.policy.max_pools
    if most is None:
        return None
    return Turned(stand.with_policy(max_pools=most + 1), 1.0, "offer", f"{most + 1} different offers")


def _rewards(stand: Stand, _: str) -> Turned:
    workload = stand.problem.workload
    seconds = max(0.0, workload.reward_cpu_s_per_sample - 1.0 / stand.samples_per_s)
    workload = workload.model_copy(update={"reward_cpu_s_per_sample": seconds})
    return Turned(replace(stand.problem, workload=workload), 1.0, "vCPU", "1 vCPU less for rewards")


def _in_flight(stand: Stand, _: str) -> Turned:
    batch = stand.problem.workload.samples_per_step
    problem = replace(stand.problem, slack={"in_flight": float(batch)})
    return Turned(problem, 1.0, "batch", f"{batch} samples more in flight")


def _staleness(stand: Stand, _: str) -> Turned:
    workload = stand.problem.workload
    eta = workload.eta + 1
    problem = _again(stand.problem, workload=workload.model_copy(update={"eta": eta}))
    return Turned(problem, 1.0, "version", f"eta {eta} instead of {eta - 1}")


def _deadline(stand: Stand, _: str) -> Turned | None:
    hours = stand.problem.policy.deadline_h
    if hours is None:
        return None
    return Turned(stand.with_policy(deadline_h=hours + 1.0), 1.0, "hour", "a deadline 1 h later")


def _quota(stand: Stand, key: str) -> Turned | None:
    """A unit is often less than any machine takes, so the step is what the smallest one does."""
    market = stand.problem.market
    drawn = [draw.units for offer in market.offers for draw in offer.draws() if draw.quota == key and draw.units > 0]
    if not drawn:
        return None
    units = min(drawn)
    quotas = tuple(
        quota.model_copy(update={"left": quota.left + units}) if quota.key == key else quota for quota in market.quotas
    )
    problem = _again(stand.problem, market=market.model_copy(update={"quotas": quotas}))
    return Turned(problem, units, "unit", f"{units:g} more units of {key}")


def _stock(stand: Stand, name: str) -> Turned | None:
    """One more machine, in any role; other offers keep what the policy's depth leaves of them."""
    problem = stand.problem
    if name not in problem.offers:
        return None
    stock = problem.stock
    offers = tuple(
        offer.twin(stock=stock[offer.id] + (offer.id == name), proven=offer.proven or offer.id == name)
        if offer.id in stock
        else offer.twin(stock=0)
        for offer in problem.market.offers
    )
    policy = problem.policy.model_copy(
        update={"max_nodes_per_pool": max([problem.policy.max_nodes_per_pool, *stock.values()]) + 1}
    )
    more = _again(problem, market=problem.market.model_copy(update={"offers": offers}), policy=policy)
    return Turned(more, 1.0, "machine", f"{stock[OfferId(name)] + 1} machines")


_DIALS: dict[str, Dial] = {
    "target": _target,
    "train_rate": _train_rate,
    "rollout_rate": _rollout_rate,
    "survive": _survive,
    "hourly_budget": _budget,
    "spot_share": _spot,
    "pools": _pools,
    "in_flight": _in_flight,
    "reward_cpu": _rewards,
    "staleness_reach": _staleness,
    "deadline": _deadline,
    "quota": _quota,
    "stock": _stock,
}
