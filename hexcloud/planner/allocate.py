"""allocate: how many of each offer in which role, by MILP, with the proof.

min_cost buys `target_samples_per_s` for least USD/h. max_throughput finds the largest T whose cheapest plan keeps every
rule: dearer rent, fewer columns in reach and longer pauses make the price rise with T, never fall. budget_run finds the
T at which a sample costs least, no slower than the deadline and no dearer than the budget allows.
"""

from dataclasses import replace

from hexcloud.domain.errors import ConfigError, InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation, Columns, Proof, RolloutShare, TrainerShare
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.binding import binding_rules
from hexcloud.planner.clash import clashing_rules
from hexcloud.planner.fastest import fastest
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import S_PER_H, Problem
from hexcloud.planner.search import Found, Held, cheapest
from hexcloud.planner.stretch import kept_at
from hexcloud.planner.thriftiest import thriftiest
from hexcloud.planner.words import rule_in_words

MIP_GAP = 1e-3
"""A tenth of a percent is far below what prices move between two plans."""
_COARSE = 1e-3
"""Relative precision of the nearest feasible throughput that an error message names."""
_SLOWEST = 1.0 / 3600.0
"""Samples/s that stand for `any throughput at all`."""
_HALF = 0.5
"""Of the gap: the cheapest sample and the plan that makes it are each found within half."""
_FINEST = 1e-7
"""Relative width at which the bisection over T stops when gap 0 is asked for."""


def allocate(
    columns: Columns | Kinds, market: Market, workload: Workload, policy: Policy, fleet: FleetState
) -> Allocation:
    """Return the best allocation for the policy's objective. Raises what `solve` raises."""
    return solve(Problem(columns=columns, market=market, workload=workload, policy=policy, fleet=fleet))


def solve(problem: Problem, gap: float = MIP_GAP, start: Allocation | None = None) -> Allocation:
    """Return the best allocation within a relative gap (0: exact); `start` is one that was good before prices moved.

    Raises InfeasibleError with the clashing rules and the nearest feasible throughput, SolverStoppedError when the node
    limit comes before the proof, and ConfigError for min_cost without a target.
    """
    policy = problem.policy
    if problem.loses_its_one_pool:
        raise _infeasible(problem, policy.least_samples_per_s or _SLOWEST)
    if policy.objective is Objective.MAX_THROUGHPUT:
        return _fastest(problem, gap, start)
    if policy.objective is Objective.BUDGET_RUN:
        return _thriftiest(problem, gap, start)
    if policy.target_samples_per_s is None:
        raise ConfigError("objective min_cost needs a target throughput (--target-throughput, or target: in run.yaml)")
    found = cheapest(problem, policy.target_samples_per_s, gap, _held(start))
    if found is None:
        raise _infeasible(problem, policy.target_samples_per_s)
    found = _no_dearer(problem, found, start)
    proof = Proof(
        lower_bound_usd_per_hour=found.bound,
        gap=_relative(found.solution.objective, found.bound),
        binding=binding_rules(found, problem),
        nodes=found.nodes,
    )
    return _allocation(found, proof)


def _held(start: Allocation | None) -> Held | None:
    return None if start is None else Held.of(start)


def _no_dearer(problem: Problem, found: Found, start: Allocation | None) -> Found:
    """Return an answer, with the machines of the start where they do the same for less: both are within the gap."""
    kept = None if start is None else kept_at(problem, Held.of(start), found.rules.choice.samples_per_s)
    if kept is None or kept.solution.objective >= found.solution.objective:
        return found
    return replace(found, rules=kept.rules, solution=kept.solution)


def with_machines(problem: Problem, plan: Allocation, found: Found) -> Allocation:
    """Return a plan with the machines of an answer that does the same for less; what was proven of all stands."""
    proof, price = plan.proof, found.solution.objective
    known: dict[str, object] = {"binding": binding_rules(found, problem)}
    if proof.lower_bound_usd_per_hour is not None:
        bound = min(proof.lower_bound_usd_per_hour, price)
        known |= {"lower_bound_usd_per_hour": bound, "gap": _relative(price, bound)}
    if proof.lower_bound_usd_per_sample is not None:
        usd_per_sample = price / found.rules.choice.samples_per_s / S_PER_H
        bound = min(proof.lower_bound_usd_per_sample, usd_per_sample)
        known |= {"lower_bound_usd_per_sample": bound, "gap": _relative(usd_per_sample, bound)}
    return _allocation(found, proof.model_copy(update=known))


def _fastest(problem: Problem, gap: float, start: Allocation | None) -> Allocation:
    least = problem.policy.target_samples_per_s
    found, ceiling = fastest(problem, max(gap, _FINEST), start=_held(start))
    if found is None:
        raise _infeasible(problem, least or _SLOWEST)
    reached = found.rules.choice.samples_per_s
    if least is not None and reached < least:
        raise _infeasible(problem, least)
    found = _no_dearer(problem, found, start)
    proof = Proof(
        lower_bound_usd_per_hour=None,
        upper_bound_samples_per_s=ceiling,
        gap=_relative(ceiling, reached),
        binding=binding_rules(found, problem),
        nodes=found.nodes,
    )
    return _allocation(found, proof)


def _thriftiest(problem: Problem, gap: float, start: Allocation | None) -> Allocation:
    policy = problem.policy
    if policy.budget_usd is None or policy.run_samples is None:
        raise ConfigError("objective budget_run needs budget_usd, and the samples of the run (run_samples)")
    slowest = policy.least_samples_per_s or 0.0
    thrift = thriftiest(problem, slowest, max(gap, _FINEST) * _HALF, _held(start))
    if thrift is None:
        raise _infeasible(problem, slowest or _SLOWEST)
    found = _no_dearer(problem, thrift.found, start)
    reached, price = found.rules.choice.samples_per_s, found.solution.objective
    cost_usd = price / (reached * S_PER_H) * policy.run_samples
    if cost_usd > policy.budget_usd:
        tokens = problem.workload.tokens_per_sample
        message = (
            f"{policy.run_samples:.0f} samples cost at least {cost_usd:.2f} USD and there are {policy.budget_usd:.2f}; "
            f"rules that clash: run_budget ({rule_in_words('run_budget')}); cheapest is {reached * tokens:.0f} tok/s"
        )
        raise InfeasibleError(message, ("run_budget",), reached, price)
    proof = Proof(
        lower_bound_usd_per_hour=None,
        lower_bound_usd_per_sample=thrift.bound / S_PER_H,
        gap=_relative(price / reached, thrift.bound),
        binding=binding_rules(found, problem),
        nodes=found.nodes,
    )
    return _allocation(found, proof)


def _infeasible(problem: Problem, asked: float) -> InfeasibleError:
    rules = clashing_rules(problem, asked)
    below = asked if asked > _SLOWEST else INFINITY
    nearest = None if problem.loses_its_one_pool else fastest(problem, _COARSE, below)[0]
    names = "; ".join(f"{rule} ({rule_in_words(rule)})" for rule in rules)
    if nearest is None:
        return InfeasibleError(f"nothing is feasible at any throughput; rules that clash: {names}", rules)
    reached, price = nearest.rules.choice.samples_per_s, nearest.solution.objective
    tokens = problem.workload.tokens_per_sample
    message = (
        f"no plan makes {asked * tokens:.0f} tok/s; rules that clash: {names}; "
        f"nearest is {reached * tokens:.0f} tok/s at {price:.2f} USD/h"
    )
    return InfeasibleError(message, rules, reached, price)


def _allocation(found: Found, proof: Proof) -> Allocation:
    rules, solution = found.rules, found.solution
    shares = [
        RolloutShare(column=column, count=count, usd_per_hour=count * column.nodes * rules.offer(column).usd_per_hour)
        for column, machines in rules.rollout
        if (count := solution.count(machines)) > 0
    ]
    gang = next(gang for gang, chosen in rules.gangs if solution.count(chosen) == 1)
    return Allocation(
        rollout=tuple(sorted(shares, key=lambda share: (share.column.offer_id, share.column.batch))),
        trainer=TrainerShare(column=gang, usd_per_hour=gang.nodes * rules.offer(gang).usd_per_hour),
        samples_per_s=rules.choice.samples_per_s,
        rent_usd_per_hour=rules.rent.usd_per_hour(solution),
        egress_usd_per_hour=rules.egress.usd_per_hour(solution),
        one_off_usd_per_hour=rules.one_off.usd_per_hour(solution),
        risk_usd_per_hour=rules.risk.usd_per_hour(solution),
        proof=proof,
    )


def _relative(larger: float, smaller: float) -> float:
    return max(0.0, larger - smaller) / abs(larger) if larger else 0.0
