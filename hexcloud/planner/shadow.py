"""shadow: what each rule that binds a plan costs per hour, by solving again with that rule a little looser.

Duals of the relaxed model would be wrong here: machines are whole, so a looser rule may save much, or nothing at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from hexcloud.planner.words import rule_in_words

_GAP = 1e-4
"""Relative; finer than a plan's own, since the answer is a difference of two plans."""
_STEP = 0.10
"""Share by which targets and shares are moved: less, and whole machines could seldom follow."""
_TWIN = "+1"
"""Ends the id of the one machine more that a pool is given."""


class ShadowPrice(Frozen):
    """What loosening a rule, or rules that stand and fall together, would save."""

    rules: tuple[str, ...]
    """Names of rows, as in `Proof.binding`."""
    meaning: str
    """What the rules demand."""
    change: str
    """How they were loosened."""
    saves_usd_per_hour: float | None
    """Fall of the best plan's price, USD/h; negative where the change asks for more; None where no plan remains."""


@dataclass(frozen=True)
class _Looser:
    change: str
    problem: Problem
    samples_per_s: float


def rule_prices(market: Market, workload: Workload, policy: Policy, allocation: Allocation) -> tuple[ShadowPrice, ...]:
    """Return the price of every rule that binds a plan which was made from these, with nothing rented yet."""
    fleet = FleetState()
    columns, _ = build_columns(screen(market, workload, policy, fleet).offers, market, workload, policy)
    return shadow_prices(Problem(columns, market, workload, policy, fleet), allocation)


def shadow_prices(problem: Problem, allocation: Allocation) -> tuple[ShadowPrice, ...]:
    """Return the price of every binding rule of an allocation, dearest first. One or two solves for each."""
    free = replace(problem, policy=problem.policy.model_copy(update={"max_usd_per_hour": None}))
    samples_per_s = allocation.samples_per_s
    best = cheapest(free, samples_per_s, _GAP)
    if best is None:
        return ()
    prices = []
    for rules in _grouped(allocation.proof.binding):
        looser = _loosened(rules[0], free, samples_per_s)
        if looser is None:
            continue
        found = cheapest(looser.problem, looser.samples_per_s, _GAP)
        saves = None if found is None else best.solution.objective - found.solution.objective
        if saves is not None and looser.samples_per_s <= samples_per_s:
            saves = max(0.0, saves)  # less than nothing can only be the gap
        meaning = "; ".join(dict.fromkeys(_meaning(rules)))
        prices.append(ShadowPrice(rules=rules, meaning=meaning, change=looser.change, saves_usd_per_hour=saves))
    return tuple(sorted(prices, key=lambda price: -abs(price.saves_usd_per_hour or 0.0)))


def _kind(rule: str) -> str:
    return rule.partition("[")[0]


def _grouped(binding: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Put rules together that one change loosens: both rates hang on the target, all domains on the survival share."""
    together = {"train_rate": "target", "rollout_rate": "target", "survive": "survive"}
    groups: dict[str, list[str]] = {}
    for rule in binding:
        groups.setdefault(together.get(_kind(rule), rule), []).append(rule)
    yield from (tuple(rules) for rules in groups.values())


def _meaning(rules: tuple[str, ...]) -> Iterator[str]:
    if len(rules) > 1 and _kind(rules[0]) == "survive":
        yield f"enough rollout must remain when any one of {len(rules)} failure domains is lost"
        return
    yield from (rule_in_words(rule) for rule in rules)


def _loosened(rule: str, problem: Problem, samples_per_s: float) -> _Looser | None:
    """Return the problem with a rule a little looser, and in words how; None for rules that have no dial."""
    kind, _, name = rule.partition("[")
    loosen = _LOOSEN.get(kind)
    return None if loosen is None else loosen(problem, samples_per_s, name.removesuffix("]"))


def _target(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    tokens_per_s = samples_per_s * problem.workload.tokens_per_sample
    change = f"{_STEP:.0%} less throughput ({tokens_per_s * _STEP:.0f} tok/s)"
    return _Looser(change, _at_pace(problem, samples_per_s * (1 - _STEP)), samples_per_s * (1 - _STEP))


def _budget(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    tokens_per_s = samples_per_s * problem.workload.tokens_per_sample
    change = f"a cap that allows {_STEP:.0%} more throughput ({tokens_per_s * _STEP:.0f} tok/s)"
    return _Looser(change, _at_pace(problem, samples_per_s * (1 + _STEP)), samples_per_s * (1 + _STEP))


def _at_pace(problem: Problem, samples_per_s: float) -> Problem:
    """Return the problem with the columns for another target: which batches are quick enough depends on it."""
    return _rebuilt(_with_policy(problem, target_samples_per_s=samples_per_s))


def _rebuilt(problem: Problem) -> Problem:
    columns, _ = build_columns(tuple(problem.offers.values()), problem.market, problem.workload, problem.policy)
    return replace(problem, columns=columns)


def _survival(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    share = max(0.0, problem.policy.survival_share - _STEP)
    change = f"survival share {share:.2f} instead of {problem.policy.survival_share:.2f}"
    return _Looser(change, _with_policy(problem, survival_share=share), samples_per_s)


def _spot(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    share = min(1.0, problem.policy.max_spot_share + _STEP)
    change = f"up to {share:.0%} of rollout on spot instead of {problem.policy.max_spot_share:.0%}"
    return _Looser(change, _with_policy(problem, max_spot_share=share), samples_per_s)


def _pools(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    pools = (problem.policy.max_pools or 0) + 1
    return _Looser("one more different offer", _with_policy(problem, max_pools=pools), samples_per_s)


def _in_flight(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    """One more version of staleness lets more samples be in flight, and farther regions take part."""
    eta = problem.workload.eta + 1
    workload = problem.workload.model_copy(update={"eta": eta})
    return _Looser(f"eta {eta} instead of {eta - 1}", _rebuilt(replace(problem, workload=workload)), samples_per_s)


def _rewards(problem: Problem, samples_per_s: float, _: str) -> _Looser:
    seconds = problem.workload.reward_cpu_s_per_sample * (1 - _STEP)
    workload = problem.workload.model_copy(update={"reward_cpu_s_per_sample": seconds})
    return _Looser(f"rewards {_STEP:.0%} cheaper in CPU time", replace(problem, workload=workload), samples_per_s)


def _quota(problem: Problem, samples_per_s: float, key: str) -> _Looser:
    drawn = [draw.units for offer in problem.offers.values() for draw in offer.draws() if draw.quota == key]
    units = min(drawn, default=1.0)
    quotas = tuple(
        quota.model_copy(update={"left": quota.left + units}) if quota.key == key else quota
        for quota in problem.market.quotas
    )
    market = problem.market.model_copy(update={"quotas": quotas})
    return _Looser(f"{units:g} more units of {key}", replace(problem, market=market), samples_per_s)


def _stock(problem: Problem, samples_per_s: float, name: str) -> _Looser | None:
    """Give a pool one more machine for rollout, as a twin offer of which there is one."""
    offer = problem.offers.get(OfferId(name))
    if offer is None:
        return None
    twin = offer.model_copy(update={"id": OfferId(name + _TWIN), "stock": 1})
    return _Looser("one more machine for rollout", _with_twin(problem, offer, twin), samples_per_s)


def _with_twin(problem: Problem, offer: Offer, twin: Offer) -> Problem:
    columns = problem.kinds.with_twin(offer.id, twin.id)
    market = problem.market.model_copy(update={"offers": (*problem.market.offers, twin)})
    return replace(problem, columns=columns, market=market)


def _with_policy(problem: Problem, **changes: float) -> Problem:
    return replace(problem, policy=problem.policy.model_copy(update=changes))


_LOOSEN: dict[str, Callable[[Problem, float, str], _Looser | None]] = {
    "train_rate": _target,
    "rollout_rate": _target,
    "hourly_budget": _budget,
    "survive": _survival,
    "spot_share": _spot,
    "pools": _pools,
    "in_flight": _in_flight,
    "reward_cpu": _rewards,
    "quota": _quota,
    "stock": _stock,
}
