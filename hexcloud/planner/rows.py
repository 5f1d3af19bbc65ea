"""rows: the MILP of one trainer site at one throughput T, with every rule as a named row.

With the site and T fixed the model is linear and small: egress is a fixed charge per region, pauses and reach are
constants, and no big-M links the trainer's region to anything.
"""

from collections import defaultdict

import numpy as np

from hexcloud.domain.offer import OfferId, Tenure
from hexcloud.estimate.risk import gang_loss_share
from hexcloud.planner.egress import add_egress
from hexcloud.planner.milp import Term, Variable
from hexcloud.planner.rules import UNNAMED, Choice, RuleModel, by_unit, ones


def build(choice: Choice) -> RuleModel:
    """Return the model of a choice with all its rules."""
    rules = RuleModel(choice)
    _add_starts(rules)
    _add_rates(rules)
    _add_trainer(rules)
    _add_counts(rules)
    add_egress(rules)
    _add_risk(rules)
    _add_budget(rules)
    return rules


def _add_starts(rules: RuleModel) -> None:
    """Charge the start of every rollout machine that does not run yet; a replica of several starts as a whole."""
    problem = rules.problem
    for (name, nodes), columns in by_unit(rules.rollout).items():
        usd_per_hour = nodes * problem.new_machine_usd_per_hour(problem.offers[name])
        running = problem.limits.units(name, nodes)
        if running == 0:
            for machines in columns:
                rules.charge(rules.one_off, machines, usd_per_hour)
            continue
        starting = rules.model.add_variable()
        rules.charge(rules.one_off, starting, usd_per_hour)
        rules.model.add_row(UNNAMED, [*ones(columns), (starting, -1.0)], upper=running)


def _add_rates(rules: RuleModel) -> None:
    """Throughput of the rollout side, what must survive, how much of it may be spot, and cores for rewards."""
    unit = _unit(rules.useful.top)
    total = _add_total(rules, rules.of(rules.useful.made / unit))
    rules.at_least("rollout_rate", [(total, 1.0)], 1.0 / unit)
    _add_survival(rules)
    _add_spot_share(rules)
    cores = zip(_variables(rules), rules.of(rules.useful.cores), strict=True)
    rules.at_least("reward_cpu", cores, rules.problem.workload.reward_cpu_s_per_sample)


def _variables(rules: RuleModel) -> list[Variable]:
    return [machines for _, machines in rules.rollout]


def _add_total(rules: RuleModel, rates: list[float]) -> Variable:
    """Return a variable that sums rates, each counted as far as it can matter: whole machines reach it the same.

    One machine that makes ten times the target then counts once, so the relaxation cannot buy a tenth of it.
    """
    total = rules.model.add_variable()
    terms = zip(_variables(rules), rates, strict=True)
    rules.model.add_row(UNNAMED, [*terms, (total, -1.0)], lower=0.0, upper=0.0)
    return total


def _unit(enough: float) -> float:
    """Return the samples/s in which a row counts: a target under the solver's tolerance would be met by no machine."""
    return min(enough, 1.0)


def _add_survival(rules: RuleModel) -> None:
    """Whatever one failure domain is lost, sigma * T must remain."""
    share = rules.problem.policy.survival_share
    if share == 0 or not rules.rollout:
        return
    unit = _unit(share * rules.useful.top)
    rates = rules.of(rules.useful.surviving / unit)
    total = _add_total(rules, rates)
    names, numbers = rules.useful.table.domains
    lost: dict[int, list[Term]] = defaultdict(list)
    domains = numbers[list(rules.choice.rollout)].tolist()
    for domain, machines, rate in zip(domains, _variables(rules), rates, strict=True):
        lost[domain].append((machines, -rate))
    for domain, terms in sorted(lost.items()):
        name = f"survive[{names[domain]}]"
        rules.at_least(name, [(total, 1.0), *terms], share / unit, rules.problem.slack.get(name, 0.0) / unit)


def _add_spot_share(rules: RuleModel) -> None:
    useful, share = rules.useful, rules.problem.policy.max_spot_share
    if not useful.shares_spot or all(rules.offer(column).tenure is Tenure.ON_DEMAND for column, _ in rules.rollout):
        return
    if useful.is_eased:
        unit = _unit((1 - share) * useful.top)
        staying = zip(_variables(rules), rules.of(useful.staying / unit), strict=True)
        rules.at_least("spot_share", staying, (1 - share) / unit)
        return
    terms = np.where(useful.table.is_spot, (1 - share) * useful.full_rates, -share * useful.full_rates)
    rules.limit("spot_share", zip(_variables(rules), rules.of(terms), strict=True), upper=0.0)


def _add_trainer(rules: RuleModel) -> None:
    """Exactly one gang, fast enough."""
    if not rules.gangs:
        return
    rules.model.add_row("one_gang", ones(variable for _, variable in rules.gangs), lower=1.0, upper=1.0)
    trained = [(variable, gang.samples_per_s * rules.problem.duty) for gang, variable in rules.gangs]
    rules.at_least("train_rate", trained, 1.0)


def _add_counts(rules: RuleModel) -> None:
    """Stock, quota, slots in flight and number of pools."""
    problem, workload = rules.problem, rules.problem.workload
    held = _held(rules)
    for name, machines in held.items():
        if len(machines) > 1:  # the variable's own bound is enough for one
            rules.limit(f"stock[{name}]", machines, upper=problem.stock[name])
    for key, left in sorted(problem.quotas.items()):
        drawn = [
            (variable, count * draw.units)
            for name, machines in held.items()
            for draw in problem.offers[name].draws()
            if draw.quota == key
            for variable, count in machines
        ]
        if drawn:
            rules.limit(f"quota[{key}]", drawn, upper=left)
    if not rules.useful.is_eased:
        slots = zip(_variables(rules), rules.of(rules.useful.table.slots), strict=True)
        most = (workload.eta + 1) * workload.samples_per_step
        rules.limit("in_flight", slots, upper=float(most) + problem.slack.get("in_flight", 0.0))
    if problem.require and rules.gangs:
        wanted = [term for name, machines in held.items() if name in problem.require for term in machines]
        rules.limit(f"require[{min(problem.require)}]", wanted, lower=1.0)
    if problem.policy.max_pools is not None and not rules.choice.relaxed:
        pools = [rules.flag(terms) for terms in held.values()]
        rules.limit("pools", ones(pools), upper=float(problem.policy.max_pools))


def _add_risk(rules: RuleModel) -> None:
    """Price the loss of a spot gang: a share of the whole rent, as the whole fleet waits for it."""
    problem = rules.problem
    by_share: dict[float, list[Variable]] = defaultdict(list)
    for gang, variable in rules.gangs:
        by_share[gang_loss_share(rules.offer(gang), gang.nodes, problem.market.calibration)].append(variable)
    by_share.pop(0.0, None)
    if not by_share:
        return
    loss = rules.model.add_variable()
    rules.charge(rules.risk, loss, 1.0)
    rent = rules.rent.terms
    most_rent = sum(usd * rules.model.upper(variable) for variable, usd in rent)
    for share, variables in sorted(by_share.items()):
        slope = [(variable, -share * usd) for variable, usd in rent if variable not in variables]
        own = {variable: -share * usd for variable, usd in rent if variable in variables}
        chosen = [(variable, own[variable] - share * most_rent) for variable in variables]
        rules.model.add_row(UNNAMED, [(loss, 1.0), *slope, *chosen], lower=-share * most_rent)


def _add_budget(rules: RuleModel) -> None:
    """Cap what the plan pays per hour: rent, egress and spread one-off costs."""
    cap = rules.problem.policy.max_usd_per_hour
    if cap is None:
        return
    prices: dict[Variable, float] = defaultdict(float)
    for bill in (rules.rent, rules.egress, rules.one_off):
        for variable, usd in bill.terms:
            prices[variable] += usd
    rules.limit("hourly_budget", prices.items(), upper=cap)


def _held(rules: RuleModel) -> dict[OfferId, list[Term]]:
    """Machines held of each offer, in both roles."""
    held: dict[OfferId, list[Term]] = defaultdict(list)
    for column, variable in rules.rollout:
        held[column.offer_id].append((variable, float(column.nodes)))
    for gang, variable in rules.gangs:
        held[gang.offer_id].append((variable, float(gang.nodes)))
    return dict(sorted(held.items()))
