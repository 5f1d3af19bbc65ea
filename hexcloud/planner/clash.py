"""clash: which rules make an ask impossible, by letting every limit be broken and minimising by how much."""

import numpy as np

from hexcloud.planner.milp import INFINITY, Status
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice
from hexcloud.planner.useful import Useful

MOST_NAMES = 12
"""More names than a reader takes in; the ones that must give way come first."""
_BROKEN = 1e-6
_COARSE_GAP = 0.05
_NODE_LIMIT = 200
"""An explanation may be imprecise, but not slow."""


def clashing_rules(problem: Problem, samples_per_s: float) -> tuple[str, ...]:
    """Return names of rules that clash: those that would have to give way first, then those at their limit beside them.

    Rules that leave no column at all (`one_gang`, `train_rate`, `rollout_rate`, `staleness_reach`) come before both.
    """
    empty = _empty(problem, samples_per_s)
    useful = Useful(problem, samples_per_s)
    near = np.flatnonzero(useful.is_near) if useful.is_near.any() else np.arange(len(useful.table))
    if len(near) == 0:
        return tuple(empty)
    choice = Choice(useful, tuple(near.tolist()), problem.gangs, None)
    broken, tight = _broken(problem, choice, relaxed=True)
    if not broken and not empty:
        broken, tight = _broken(problem, choice, relaxed=False)
    if not broken and not empty:
        broken, tight = _broken_somewhere(problem, choice)
    return tuple(dict.fromkeys([*empty, *broken, *tight]))[:MOST_NAMES]


def _broken_somewhere(problem: Problem, choice: Choice) -> tuple[list[str], list[str]]:
    """Limits that clash once the trainer has to stand somewhere, at the site with the cheapest gangs.

    Without a site all is well, so what is out of the site's reach, or costs too much to reach, is part of the clash.
    """
    ranked = problem.gang_table.ranked(choice.samples_per_s, INFINITY)
    if not ranked:
        return ["train_rate"], []
    site, gangs = ranked[0].site, ranked[0].gangs
    in_reach = choice.useful.in_reach(site)
    near = tuple(position for position in choice.rollout if in_reach[position])
    reach = ["staleness_reach"] if len(near) < len(choice.rollout) else []
    if not near:
        return reach, []
    there = Choice(choice.useful, near, gangs, site.anchor)
    broken, tight = _broken(problem, there, relaxed=True)
    if not broken:
        broken, tight = _broken(problem, there, relaxed=False)
    return [*reach, *broken] or ["rollout_rate"], tight


def _empty(problem: Problem, samples_per_s: float) -> list[str]:
    """Rules after which nothing is left to choose from."""
    names = []
    if not problem.gangs:
        names.append("one_gang")
    elif max(gang.samples_per_s for gang in problem.gangs) * problem.duty < samples_per_s:
        names.append("train_rate")
    if not (problem.facts.stock[problem.rungs.sizes[problem.ladders] > 0] > 0).any():
        names.append("rollout_rate")
    elif not Useful(problem, samples_per_s).is_near.any():
        names.append("staleness_reach")
    return names


def _broken(problem: Problem, choice: Choice, *, relaxed: bool) -> tuple[list[str], list[str]]:
    """Limits that the least broken plan breaks, and those it touches. Relaxed is quick but blind to whole numbers."""
    rules = build(choice, elastic=True)
    solution = rules.model.minimise(gap=_COARSE_GAP, node_limit=_NODE_LIMIT, relaxed=relaxed)
    if not solution.values:
        return (["rollout_rate"] if solution.status is Status.INFEASIBLE else []), []
    broken = [name for name, slack in rules.slacks if solution.values[slack] > _BROKEN]
    return broken, [name for name in solution.binding if not name.startswith("stock[")]
