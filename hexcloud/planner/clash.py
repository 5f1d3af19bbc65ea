"""clash: which rules make an ask impossible together: a set of which none can be spared.

A deletion filter: rules are taken away one after the other, and stay away where the ask is still impossible without.
What is left clashes, and without any one of it the others can be kept.
"""

from dataclasses import dataclass, field

from hexcloud.domain.errors import SolverStoppedError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from hexcloud.planner.unruled import Ruled
from hexcloud.planner.words import PHYSICS, mend_in_words, rule_in_words

_ANY = 0.9
"""Relative gap: any plan will do."""
_MOST_TRIES = 60
"""Solves; two dozen as a rule. Rules that are not tried by then are named with those that clash."""

_ONE_POOL_LOST = ("survive", "pools")
"""What clashes where the one offer of a plan must survive its own loss: nothing has to be solved to know that."""


def clashing_rules(problem: Problem, samples_per_s: float, *, is_market: bool = True) -> tuple[str, ...]:
    """Return names of rules that clash: the ask is impossible with them alone, and possible without any one of them.

    Empty when the ask is possible. Where nothing is possible without all of them, the names say what no wish changes:
    `train_rate`, `pauses`, or that no machine could train or roll out (`one_gang`, `rollout_rate`) and why (`memory`,
    `bf16`, `gpu_facts`). `is_market`: see `Ruled`.
    """
    ruled = Ruled(problem, is_market)
    names = list(ruled.names)
    search = _Search(ruled, samples_per_s)
    if search.is_possible_without(names):
        if problem.loses_its_one_pool:
            return _ONE_POOL_LOST
        if not search.is_possible_without([]):
            search.filter(names)
        return tuple(reversed(search.kept))
    return _hopeless(ruled, samples_per_s)


class Clash(Frozen):
    """A rule that clashes, for a reader."""

    rule: str
    """Name of a row of the MILP, or of a reason for which offers are turned away."""
    demands: str
    turned_away: int
    """Offers that could be looked at without it."""
    mend: str
    """What a user can change; empty where nobody knows."""


def told_clashes(
    rules: tuple[str, ...], market: Market, workload: Workload, policy: Policy, fleet: FleetState
) -> tuple[Clash, ...]:
    """Return rules that clash in words, with the number of the market's offers that each turns away."""
    ruled = Ruled(Problem(Columns(rollout=(), trainer=()), market, workload, policy, fleet))
    known = {*ruled.names, *(f"quota[{quota.key}]" for quota in market.quotas)}
    return tuple(
        Clash(
            rule=rule,
            demands=rule_in_words(rule),
            turned_away=ruled.turned_away(rule) if rule in known else 0,
            mend=mend_in_words(rule),
        )
        for rule in rules
    )


def _hopeless(ruled: Ruled, samples_per_s: float) -> tuple[str, ...]:
    """Name what no wish can change, where nothing is possible without any rule."""
    bare = ruled.without(name for name in ruled.names if name != "train_rate")
    if bare.gangs and max(gang.samples_per_s for gang in bare.gangs) * bare.duty < samples_per_s:
        return ("train_rate",)
    empty = [*([] if bare.gangs else ["one_gang"]), *([] if bare.rollout else ["rollout_rate"])]
    return (*empty, *_physics(ruled.problem)) if empty else ("pauses",)


def _physics(problem: Problem) -> list[str]:
    """What offers lack that no wish can give them."""
    rejections = screen(problem.market, problem.workload, problem.policy, problem.fleet).rejections
    return sorted({rejection.rule for rejection in rejections} & PHYSICS)


@dataclass
class _Search:
    ruled: Ruled
    samples_per_s: float
    gone: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    tries: int = 0

    def filter(self, names: list[str]) -> None:
        """Sort rules into those that can go and those that clash; halves that can go as a whole take one try."""
        if not self.is_possible_without([*self.gone, *names]):
            self.gone += names
        elif len(names) == 1 or self.tries >= _MOST_TRIES:
            self.kept += names
        else:
            middle = len(names) // 2
            self.filter(names[:middle])
            self.filter(names[middle:])

    def is_possible_without(self, names: list[str]) -> bool:
        """Is there a plan without these rules? One that the solver cannot rule out counts as one."""
        self.tries += 1
        problem = self.ruled.without(names)
        if problem.loses_its_one_pool:
            return False
        try:
            return cheapest(problem, self.samples_per_s, _ANY) is not None
        except SolverStoppedError:
            return True
