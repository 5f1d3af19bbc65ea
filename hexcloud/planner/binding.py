"""binding: which rules hold a plan where it is: one machine less would break them, or one machine more."""

from collections import Counter, defaultdict

from hexcloud.domain.offer import OfferId, Tenure
from hexcloud.domain.plan import RolloutColumn, TrainerColumn
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.rules import RuleModel
from hexcloud.planner.search import Found

Held = tuple[tuple[RolloutColumn, int], ...]


def binding_rules(found: Found, problem: Problem) -> tuple[str, ...]:
    """Return names of rules: first those that need every machine, then those that leave room for none more.

    Whole machines seldom meet a limit to the last digit, so a rule binds when the smallest machine held decides it.
    `problem` is the one that was asked: the answer may have been found among some of its offers only.
    """
    rules = found.rules
    held = tuple((column, count) for column, machines in rules.rollout if (count := found.solution.count(machines)))
    gang = next(gang for gang, chosen in rules.gangs if found.solution.count(chosen))
    return (*_needing(rules, problem, held, gang), *_full(found, problem, held, gang))


def _needing(rules: RuleModel, problem: Problem, held: Held, gang: TrainerColumn) -> list[str]:
    """Rules that one machine less would break; of gangs, those that a cheaper one is too slow for."""
    target = rules.choice.samples_per_s
    gangs = problem.gang_table.all
    is_slower_for_less = (gangs.rates < target) & (gangs.usd_per_hour < problem.gang_usd_per_hour(gang))
    names = ["train_rate"] if is_slower_for_less.any() else []
    rates = {column: problem.rate(column, target) for column, _ in held}
    made = sum(rates[column] * count for column, count in held)
    if made - min(rates.values()) < target:
        names.append("rollout_rate")
    least = problem.policy.survival_share * target
    lost: dict[str, float] = defaultdict(float)
    for column, count in held:
        lost[rules.offer(column).domain] += rates[column] * count
    for domain, rate in sorted(lost.items()):
        outside = [rates[column] for column, _ in held if rules.offer(column).domain != domain]
        if least > 0 and made - rate - min(outside, default=0.0) < least:
            names.append(f"survive[{domain}]")
    cores = [problem.reward_vcpus(column) for column, _ in held]
    kept = sum(problem.reward_vcpus(column) * count for column, count in held)
    if kept - min(cores) < target * problem.workload.reward_cpu_s_per_sample:
        names.append("reward_cpu")
    return names


def _full(found: Found, problem: Problem, held: Held, gang: TrainerColumn) -> list[str]:
    """Rules that one machine more, of those held, would break."""
    rules = found.rules
    machines = Counter({gang.offer_id: gang.nodes})
    for column, count in held:
        machines[column.offer_id] += count * column.nodes
    workload, policy = problem.workload, problem.policy
    more = {gang.offer_id: 1} | {column.offer_id: column.nodes for column, _ in held}
    names = [f"stock[{name}]" for name, count in sorted(machines.items()) if count + more[name] > problem.stock[name]]
    names += _full_quotas(problem, machines, more)
    slots = sum(column.slots * count for column, count in held) + min(column.slots for column, _ in held)
    if slots > (workload.eta + 1) * workload.samples_per_step:
        names.append("in_flight")
    bill = sum(part.usd_per_hour(found.solution) for part in (rules.rent, rules.egress, rules.one_off))
    cheapest = min(column.nodes * rules.offer(column).usd_per_hour for column, _ in held)
    if policy.max_usd_per_hour is not None and bill + cheapest > policy.max_usd_per_hour:
        names.append("hourly_budget")
    if policy.max_pools is not None and len(machines) >= policy.max_pools:
        names.append("pools")
    if _is_spot_full(rules, problem, held):
        names.append("spot_share")
    return names


def _full_quotas(problem: Problem, machines: Counter[OfferId], more: dict[OfferId, int]) -> list[str]:
    drawn: dict[str, float] = defaultdict(float)
    smallest: dict[str, float] = {}
    for name, count in machines.items():
        for key, units in problem.offers[name].draws():
            if key in problem.quotas:
                drawn[key] += count * units
                smallest[key] = min(units * more[name], smallest.get(key, INFINITY))
    return [f"quota[{key}]" for key, units in sorted(drawn.items()) if units + smallest[key] > problem.quotas[key]]


def _is_spot_full(rules: RuleModel, problem: Problem, held: Held) -> bool:
    rates = [(rules.offer(column).tenure, problem.full_rate(column), count) for column, count in held]
    spot = [(rate, count) for tenure, rate, count in rates if tenure is Tenure.SPOT]
    more = min((rate for rate, _ in spot), default=0.0)
    share = problem.policy.max_spot_share
    made = sum(rate * count for _, rate, count in rates)
    return share < 1 and more > 0 and sum(rate * count for rate, count in spot) + more > share * (made + more)
