"""search: the cheapest allocation at one throughput, branching on the trainer's site before counts; and the fastest."""

from dataclasses import dataclass, replace

from hexcloud.domain.errors import SolverStoppedError
from hexcloud.domain.plan import RolloutColumn, TrainerColumn
from hexcloud.planner.dominance import undominated
from hexcloud.planner.milp import INFINITY, Solution, Status
from hexcloud.planner.problem import Problem, Site
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice, RuleModel
from hexcloud.planner.useful import Useful

NODE_LIMIT = 50_000
"""Branch-and-bound nodes per site; the bundled market needs a few dozen. A time limit would not be repeatable."""

_LEAST_SHARE = 1e-6
_FEW = 200
"""Columns of the first guess."""
_HAIR = 1e-9
_FLOOR_GAP = 1e-4
_FLOOR_NODES = 500
"""The floor in whole machines is only a bound: stopping early leaves it lower, never wrong."""


@dataclass(frozen=True)
class Found:
    """The best allocation over all sites. `bound` is a proven lower bound over all sites, USD/h."""

    rules: RuleModel
    solution: Solution
    bound: float
    nodes: int


@dataclass(frozen=True)
class Trial:
    """One throughput that is tried at every site."""

    samples_per_s: float
    floor: float
    """What rollout costs at least wherever the trainer stands, in fractions of machines, USD/h."""
    extras: dict[RolloutColumn, float]
    """Columns in reach of a trainer beside them, with the USD/h by which using one raises that floor."""
    sites: tuple[tuple[float, Site, tuple[TrainerColumn, ...]], ...]
    """Least USD/h of a gang, site and its gangs that are fast enough; cheapest first, none over the hourly cap."""
    rise: float = 0.0
    """By how much whole machines are dearer than the floor, as far as is proven, USD/h."""

    @property
    def least(self) -> float:
        """Return what rollout costs at least, USD/h."""
        return self.floor + self.rise


def cheapest(problem: Problem, samples_per_s: float, gap: float) -> Found | None:
    """Return the cheapest allocation that makes `samples_per_s` within the relative gap, or None if there is none.

    Raises SolverStoppedError when the node limit comes before the proof.
    """
    trial = _trial(problem, samples_per_s)
    best = _first_guess(problem, trial, gap)
    cap = _cap_usd_per_hour(problem)
    ceiling = cap if best is None else best.solution.objective * (1.0 - gap)
    trial = _raised(problem, trial, ceiling)
    nodes, bound = 0, INFINITY
    for gang_usd, site, gangs in trial.sites:
        ceiling = cap if best is None else best.solution.objective * (1.0 - gap)
        lower = trial.least + gang_usd
        if lower >= ceiling:
            bound = min(bound, lower)
            break
        rules = _site_rules(problem, trial, site, gangs, ceiling - trial.least)
        if best is not None:
            rules.model.cap_objective(ceiling)
        solution = _solved(rules, gap)
        nodes += solution.nodes
        bound = min(bound, max(lower, min(solution.bound, ceiling)))
        if solution.values and (best is None or solution.objective < best.solution.objective):
            best = Found(rules, solution, bound, nodes)
    return None if best is None else replace(best, bound=min(bound, best.solution.objective), nodes=nodes)


def fastest(problem: Problem, width: float, below: float = INFINITY) -> tuple[Found | None, float]:
    """Return the cheapest allocation at the largest feasible throughput, and a throughput that no plan can exceed.

    `below` is a throughput known to be out of reach. Bisects T until the two are within the relative `width`: dearer
    egress, fewer columns in reach and longer pauses make everything harder as T grows, never easier. None when not even
    a millionth of the fastest gang is feasible.
    """
    ceiling = min(below, max((gang.samples_per_s * problem.duty for gang in problem.gangs), default=0.0))
    least = ceiling * _LEAST_SHARE
    reached, trial = 0.0, ceiling
    while trial > least and ceiling - reached > width * ceiling:
        if _is_feasible(problem, trial):
            reached = trial
        else:
            ceiling = trial
        trial = (ceiling + reached) / 2.0
    return (cheapest(problem, reached, width) if reached > 0 else None), ceiling


def _is_feasible(problem: Problem, samples_per_s: float) -> bool:
    """Does any site have any plan at all? The first one found ends the search."""
    cap = _cap_usd_per_hour(problem)
    trial = _raised(problem, _trial(problem, samples_per_s), cap)
    return any(
        bool(_solved(_site_rules(problem, trial, site, gangs, cap - trial.least), INFINITY).values)
        for gang_usd, site, gangs in trial.sites
        if trial.least + gang_usd <= cap
    )


def _cap_usd_per_hour(problem: Problem) -> float:
    """Return what no plan may cost; a hair more, so that a bound never rules out a plan that costs just that."""
    return (problem.policy.max_usd_per_hour or INFINITY) * (1.0 + _HAIR)


def _first_guess(problem: Problem, trial: Trial, gap: float) -> Found | None:
    """Solve the most promising site with the most promising columns: a price that later sites have to beat."""
    if not trial.sites:
        return None
    _, site, gangs = trial.sites[0]
    ranked = sorted(trial.extras, key=lambda column: (trial.extras[column], column.offer_id, column.batch))
    few = replace(trial, extras={column: trial.extras[column] for column in ranked[:_FEW]})
    rules = _site_rules(problem, few, site, gangs, INFINITY)
    solution = _solved(rules, gap)
    return Found(rules, solution, 0.0, solution.nodes) if solution.values else None


def _trial(problem: Problem, samples_per_s: float) -> Trial:
    floor, extras = _rollout_floor(problem, samples_per_s)
    cap = _cap_usd_per_hour(problem)
    ranked = []
    for site in problem.sites if floor < INFINITY else ():
        gangs = tuple(gang for gang in site.gangs if gang.samples_per_s * problem.duty >= samples_per_s)
        least = min((problem.gang_usd_per_hour(gang) for gang in gangs), default=INFINITY)
        if gangs and floor + least <= cap:
            ranked.append((least, site, gangs))
    return Trial(samples_per_s, floor, extras, tuple(sorted(ranked, key=lambda row: row[0])))


def _raised(problem: Problem, trial: Trial, ceiling: float) -> Trial:
    """Raise the floor to what whole machines cost, as far as the ceiling is concerned.

    One solve without egress rules out most sites where small targets make fractions of machines misleadingly cheap.
    """
    slack = ceiling - trial.floor - trial.sites[0][0] if trial.sites else 0.0
    if slack <= 0 or slack == INFINITY:
        return trial
    near = tuple(column for column, extra in trial.extras.items() if extra <= slack)
    gangs = [gang for _, site, gangs in trial.sites for gang in gangs]
    affordable = [gang for gang in gangs if trial.floor + problem.gang_usd_per_hour(gang) <= ceiling]
    kept = undominated(Useful(problem, trial.samples_per_s, near), affordable, relaxed=True)
    rules = build(problem, Choice(trial.samples_per_s, kept, (), None, relaxed=True))
    rules.model.cap_objective(trial.floor + slack)
    solution = rules.model.minimise(gap=_FLOOR_GAP, node_limit=_FLOOR_NODES)
    return replace(trial, rise=min(slack, max(0.0, solution.bound - trial.floor)))


def _rollout_floor(problem: Problem, samples_per_s: float) -> tuple[float, dict[RolloutColumn, float]]:
    """Return what the rollout side costs at least wherever the trainer stands, and what each column would add to that.

    It is the relaxed model without gangs and egress. Infinite when no columns suffice.
    """
    near = problem.young_enough(samples_per_s)
    if not near:
        return INFINITY, {}
    rules = build(problem, Choice(samples_per_s, near, (), None))
    solution = rules.model.minimise(gap=0.0, node_limit=NODE_LIMIT, relaxed=True)
    if not solution.values:
        return INFINITY, {}
    return solution.bound, {column: max(0.0, solution.reduced_costs[machines]) for column, machines in rules.rollout}


def _site_rules(
    problem: Problem, trial: Trial, site: Site, gangs: tuple[TrainerColumn, ...], gang_budget: float
) -> RuleModel:
    """Build a site's model without what is out of reach, dominated, or dearer than what is left beside the rollout."""
    prices = {gang: problem.gang_usd_per_hour(gang) for gang in gangs}
    affordable = tuple(gang for gang, usd in prices.items() if usd <= gang_budget)
    slack = gang_budget + trial.rise - min(prices.values())
    reachable = problem.reachable(trial.extras, site, trial.samples_per_s, slack)
    kept = undominated(Useful(problem, trial.samples_per_s, reachable), affordable)
    return build(problem, Choice(trial.samples_per_s, kept, affordable, site.anchor))


def _solved(rules: RuleModel, gap: float) -> Solution:
    solution = rules.model.minimise(gap=gap, node_limit=NODE_LIMIT)
    if solution.status is Status.STOPPED:
        raise SolverStoppedError(f"no proof within {NODE_LIMIT} nodes at {rules.choice.samples_per_s:.3f} samples/s")
    return solution
