"""search: the cheapest allocation at one throughput, branching on the trainer's site before counts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hexcloud.domain.errors import SolverStoppedError
from hexcloud.domain.offer import Tenure
from hexcloud.domain.plan import Allocation, RolloutColumn, TrainerColumn
from hexcloud.planner.alike import least_alike
from hexcloud.planner.dominance import Contest, undominated
from hexcloud.planner.gangs import Ranked
from hexcloud.planner.milp import INFINITY, Solution, Status
from hexcloud.planner.pairs import cheapest_first, is_narrow, pairs_at
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice, RuleModel
from hexcloud.planner.table import Flags
from hexcloud.planner.trial import Trial, cap_usd_per_hour, few_offers, raised, trial_at
from hexcloud.planner.useful import Useful

NODE_LIMIT = 1_000
"""Branch-and-bound nodes per model, some seconds; most need a few dozen. A time limit would not be repeatable."""
FEW_NODES = 100
"""After so many it is worth asking what whole machines cost at least (see `alike`)."""
_USUAL = 600
"""Rollout columns of a model that gets NODE_LIMIT; one twice as large gets a quarter, as each node takes longer."""
_LEAST_SHARE, MOST_SHARE = 0.05, 10.0
_MOST_OPEN = 3
"""Sites without their proof after which a search that has a plan goes to no more: its bound is then what they cost at
least."""

FEW = 60
"""Columns of a first guess."""
_CLOSE = 1.02
"""Pairs of offers that are tried first cost so much of what any pair costs at least."""
_HAIR = 1e-9


Solve = Callable[[RuleModel, float], Solution]
"""Solves a model to a relative gap."""


@dataclass(frozen=True)
class Found:
    """The best allocation over all sites. `bound` is a proven lower bound over all sites, USD/h."""

    rules: RuleModel
    solution: Solution
    bound: float
    nodes: int


class Held(NamedTuple):
    """Machines of a plan, of which the next search can take its start."""

    rollout: tuple[tuple[RolloutColumn, int], ...]
    gang: TrainerColumn

    @classmethod
    def of(cls, plan: Allocation) -> "Held":
        """Return the machines of an allocation."""
        return cls(tuple((share.column, share.count) for share in plan.rollout), plan.trainer.column)


def held_in(found: Found) -> Held:
    """Return the machines of an answer."""
    rules, solution = found.rules, found.solution
    rollout = ((column, solution.count(machines)) for column, machines in rules.rollout)
    gang = next(gang for gang, chosen in rules.gangs if solution.count(chosen) == 1)
    return Held(tuple((column, count) for column, count in rollout if count > 0), gang)


def cheapest(problem: Problem, samples_per_s: float, gap: float, start: Held | None = None) -> Found | None:
    """Return the cheapest allocation that makes `samples_per_s` within the relative gap, or None if there is none.

    `start` is a plan that was good before prices moved: what its kinds of machines cost today is the price to beat.
    Where the node limit comes before the proof, `bound` is what is proven, and further off than the gap; raises
    SolverStoppedError when then there is no plan either.
    """
    trial = trial_at(Useful(problem, samples_per_s, is_eased=True))
    best = _guess(trial, gap, start)
    cap = cap_usd_per_hour(problem)
    trial = raised(trial, cap if best is None else best.solution.objective * (1.0 - gap))
    nodes, bound, unproven = 0 if best is None else best.nodes, INFINITY, 0
    for lower, ranked in cheapest_first(trial.useful, trial.sites, trial.least):
        ceiling = cap if best is None else best.solution.objective * (1.0 - gap)
        if lower >= ceiling or (best is not None and unproven >= _MOST_OPEN):
            bound = min(bound, lower)
            break
        found = _searched(trial, ranked, gap, ceiling, INFINITY if best is None else ceiling)
        unproven += found.bound < min(ceiling, found.solution.objective * (1.0 - gap)) * (1.0 - _HAIR)
        nodes += found.nodes
        bound = min(bound, max(lower, min(found.bound, ceiling)))
        if found.solution.values and (best is None or found.solution.objective < best.solution.objective):
            best = found
    if best is None and unproven:
        raise _stopped(samples_per_s)
    return None if best is None else replace(best, bound=min(bound, best.solution.objective), nodes=nodes)


def solved(rules: RuleModel, gap: float) -> Solution:
    """Solve a model. Raises SolverStoppedError when the node limit comes before any plan, and before the proof of none.

    An answer at the node limit has a bound further off than the gap.
    """
    solution = _tried(rules, gap)
    if solution.status is Status.STOPPED and not solution.values:
        raise _stopped(rules.choice.samples_per_s)
    return solution


def _tried(rules: RuleModel, gap: float) -> Solution:
    """Solve a model as far as the nodes go: it may be stopped without an answer."""
    share = min(MOST_SHARE, max(_LEAST_SHARE, (_USUAL / max(1, len(rules.rollout))) ** 2))
    share = 1.0 if rules.problem.keeps_all else share
    return rules.model.minimise(gap=gap, node_limit=math.ceil(NODE_LIMIT * share))


def _few_nodes(rules: RuleModel, gap: float) -> Solution:
    return rules.model.minimise(gap=gap, node_limit=min(FEW_NODES, NODE_LIMIT))


def _stopped(samples_per_s: float) -> SolverStoppedError:
    return SolverStoppedError(
        f"neither a plan at {samples_per_s:.3f} samples/s nor a proof of none in {NODE_LIMIT} nodes"
    )


def _is_open(found: Found) -> bool:
    """Is it open whether there is a plan?"""
    return found.solution.status is Status.STOPPED and not found.solution.values


def at_site(trial: Trial, ranked: Ranked, gap: float, ceiling: float, cutoff: float = INFINITY) -> Found:
    """Solve one site: without what is out of reach, dominated, or over the ceiling together with the rest.

    Answers over the cutoff are not looked for, nor any where no rollout machine is left. Raises SolverStoppedError
    when neither an answer is found nor that there is none.
    """
    found = _searched(trial, ranked, gap, ceiling, cutoff)
    if _is_open(found):
        raise _stopped(trial.useful.samples_per_s)
    return found


def _searched(trial: Trial, ranked: Ranked, gap: float, ceiling: float, cutoff: float) -> Found:
    """As `at_site`, but where the nodes are used up without an answer it still says what is proven."""
    if is_narrow(trial.useful.problem):
        return _of_pairs(trial, ranked, gap, (ceiling, cutoff))
    return _of_all(trial, ranked, gap, ceiling, cutoff)


def _of_pairs(trial: Trial, ranked: Ranked, gap: float, limits: tuple[float, float]) -> Found:
    """Search the cheapest pairs of offers, and then those that might be cheaper than the plan of these."""
    limit = min(limits)
    least = pairs_at(trial.useful, ranked, 0.0).usd_per_hour

    def under(ceiling: float) -> Found:
        pairs = pairs_at(trial.useful, ranked, ceiling)
        among = pairs.offers if trial.among is None else pairs.offers & trial.among
        site = ranked._replace(able=ranked.able[pairs.gangs])
        return _of_all(replace(trial, among=among), site, gap, *limits)

    close = least * _CLOSE
    best = under(min(limit, close))
    best = replace(best, bound=max(least, min(best.bound, close)))
    goal = _goal(best, gap, limit)
    if best.bound >= goal:
        return best
    rest = under(goal)
    return replace(_better(best, rest), bound=max(best.bound, min(rest.bound, goal)))


def _of_all(trial: Trial, ranked: Ranked, gap: float, ceiling: float, cutoff: float) -> Found:
    """Search all columns of the trial.

    Where a few nodes settle nothing, a model of whole machines of a kind gives a bound, and the offers that a plan at
    that bound would hold give a plan, before all columns are searched.
    """

    def rules_of(useful: Useful) -> RuleModel:
        return _site_rules(trial, useful, ranked, ceiling)

    if trial.useful.problem.keeps_all:
        return eased_first(trial.useful, rules_of, gap, cutoff, _tried)
    quick = _once(trial.useful, rules_of, gap, cutoff, _few_nodes)
    is_proven = quick.solution.status is not Status.STOPPED
    if (is_proven and _is_answer(quick)) or quick.solution.status is Status.INFEASIBLE:
        return quick
    best = _alike(trial, ranked, gap, (ceiling, cutoff))
    best = _better(quick, best) if _is_answer(quick) else replace(best, bound=max(best.bound, quick.bound))
    goal = _goal(best, gap, cutoff)
    if best.bound >= goal:
        return best
    rest = eased_first(trial.useful.exact if is_proven else trial.useful, rules_of, gap, goal, _tried)
    return _better(best, rest)


def _goal(best: Found, gap: float, cutoff: float) -> float:
    """Return the bound that proves an answer within the gap; that there is none is proven at the cutoff only."""
    return min(cutoff, best.solution.objective * (1.0 - gap)) if best.solution.values else cutoff


def _better(one: Found, other: Found) -> Found:
    """Return the better of two answers to one model, or to parts of it, with the better bound.

    Where neither is one, the other's word counts: it looked further.
    """
    best = min(other, one, key=lambda found: found.solution.objective)
    return replace(best, bound=max(one.bound, other.bound), nodes=one.nodes + other.nodes)


def _alike(trial: Trial, ranked: Ranked, gap: float, limits: tuple[float, float]) -> Found:
    """Return a bound from machines of a kind, and the best plan under the cutoff of the offers it points at, if any."""
    least_gang, site, _ = ranked
    ceiling, cutoff = limits
    useful, most = trial.useful.exact, min(ceiling, cutoff) - least_gang
    near = trial.near(useful, site, ceiling - trial.floor.usd_per_hour - least_gang)
    least = least_alike(useful, near, most)
    few = replace(trial, among=few_offers(useful, least.rows))
    found = _once(useful, lambda _: _site_rules(few, useful, ranked, ceiling), gap, cutoff, _tried)
    return replace(found, bound=least_gang + least.usd_per_hour)


def _once(useful: Useful, rules_of: Callable[[Useful], RuleModel], gap: float, cutoff: float, solve: Solve) -> Found:
    rules = rules_of(useful)
    if not rules.rollout:
        return Found(rules, Solution(Status.INFEASIBLE, INFINITY, cutoff, 0), cutoff, 0)
    rules.model.cap_objective(cutoff)
    solution = solve(rules, gap)
    return Found(rules, solution, solution.bound, solution.nodes)


def _is_answer(found: Found) -> bool:
    """Is there an answer, and does it keep the rules that are eased?"""
    return bool(found.solution.values) and is_kept(found.rules, found.solution)


def eased_first(
    useful: Useful, rules_of: Callable[[Useful], RuleModel], gap: float, cutoff: float, solve: Solve = solved
) -> Found:
    """Solve a model of eased columns, and only when its answer breaks a rule that was eased, that of the exact ones.

    What no eased plan can do, no plan can.
    """
    eased = _once(useful, rules_of, gap, cutoff, solve)
    if not eased.solution.values or not useful.is_eased or _is_answer(eased):
        return eased
    exact = _once(useful.exact, rules_of, gap, cutoff, solve)
    return replace(exact, bound=max(eased.bound, exact.bound), nodes=eased.nodes + exact.nodes)


def _site_rules(trial: Trial, useful: Useful, ranked: Ranked, ceiling: float) -> RuleModel:
    least_gang, site, able = ranked
    if useful.problem.keeps_all:
        everything = np.flatnonzero(useful.in_reach(site))
        return build(Choice(useful, tuple(everything.tolist()), able.columns, site.anchor))
    affordable = able[trial.least + able.usd_per_hour <= ceiling]
    near = trial.near(useful, site, ceiling - trial.floor.usd_per_hour - least_gang)
    kept = undominated(Contest(useful, near, affordable.taken))
    return build(Choice(useful, tuple(kept.tolist()), affordable.columns, site.anchor))


def is_kept(rules: RuleModel, solution: Solution) -> bool:
    """Does an answer keep the rules that are eased: slots in flight and the spot share?"""
    problem = rules.problem
    held = [(column, solution.count(machines)) for column, machines in rules.rollout]
    slots = sum(column.slots * count for column, count in held)
    if slots > (problem.workload.eta + 1) * problem.workload.samples_per_step:
        return False
    share = problem.policy.max_spot_share
    made = [(rules.offer(column), problem.full_rate(column) * count) for column, count in held if count]
    spot = sum(rate for offer, rate in made if offer.tenure is Tenure.SPOT)
    return share >= 1.0 or spot <= share * sum(rate for _, rate in made) * (1.0 + _HAIR)


def _guess(trial: Trial, gap: float, start: Held | None) -> Found | None:
    """Return a plan that later sites have to beat: of the columns that were good before, else of the most promising."""
    if not trial.sites:
        return None
    known = None if start is None else _of_columns(trial, gap, start)
    if known is not None or is_narrow(trial.useful.problem):
        return known
    alive = trial.floor.alive
    few = alive[np.argsort(trial.floor.extra[alive], kind="stable")[:FEW]]
    return _among(trial, few_offers(trial.useful, few), trial.sites[0], gap)


def _of_columns(trial: Trial, gap: float, start: Held) -> Found | None:
    """Return the best plan of an earlier plan's offers, with a gang at its site."""
    numbers = trial.useful.problem.offer_numbers
    gang = numbers.get(start.gang.offer_id)
    ranked = next((one for one in trial.sites if gang in one.able.offer), None)
    used = [numbers[column.offer_id] for column, _ in start.rollout if column.offer_id in numbers]
    among = np.zeros(len(numbers), np.bool_)
    among[used] = True
    return _among(trial, among, ranked, gap) if ranked is not None and used else None


def _among(trial: Trial, among: Flags, ranked: Ranked, gap: float) -> Found | None:
    try:
        found = at_site(replace(trial, among=among), ranked, gap, INFINITY)
    except SolverStoppedError:  # it is only a guess
        return None
    return found if found.solution.values else None
