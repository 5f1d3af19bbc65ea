"""rules: a model in the making that knows what its variables mean and cost."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role, RolloutColumn, TrainerColumn
from hexcloud.planner.milp import INFINITY, Model, Solution, Term, Variable
from hexcloud.planner.table import Floats
from hexcloud.planner.useful import Useful

UNNAMED = ""
"""Rows that only define a variable: they are no rule and never reported."""

_MANY = 1e4
"""Machines of one column that no plan exceeds."""

Machines = tuple[tuple[RolloutColumn, Variable], ...]
"""Columns, and the variable that counts units of each: machines, or replicas of several."""


@dataclass(frozen=True)
class Choice:
    """What one model chooses from, at one throughput or in a range of them (see `Useful`)."""

    useful: Useful
    rollout: tuple[int, ...]
    """Rows of `useful.table`."""
    gangs: tuple[TrainerColumn, ...]
    """Empty: the rollout side alone, for a lower bound."""
    source: Offer | None
    """Where weights come from; None: egress is free."""
    relaxed: bool = False
    """For a lower bound: there is no rule `pools`."""
    grows_egress: bool = False
    """In a range: does egress grow with the throughput? Else it costs what it does at the low end, which is easier to
    solve and promises too much where egress is much of the price."""
    usd_per_sample_s: float | None = None
    """In a range: what one sample/s more is worth, USD/h, so that the objective is cost minus worth; None: cost counts
    for nothing and the objective is minus the throughput."""

    @property
    def samples_per_s(self) -> float:
        """Return the throughput, or the low end of the range."""
        return self.useful.samples_per_s


class Bill:
    """Terms of the objective of one kind, USD/h."""

    def __init__(self) -> None:
        self.terms: list[Term] = []

    def usd_per_hour(self, solution: Solution) -> float:
        """Return what a solution pays under this bill."""
        return sum(solution.values[variable] * usd for variable, usd in self.terms)


class RuleModel:
    """A model with its bills."""

    def __init__(self, choice: Choice) -> None:
        self.problem = choice.useful.problem
        self.choice = choice
        self.useful = choice.useful
        self.model = Model()
        self.rent, self.egress, self.one_off, self.risk = Bill(), Bill(), Bill(), Bill()
        self.pace = self._pace()
        self.most = self.of(self.useful.most)
        columns = [self.useful.column(row) for row in choice.rollout]
        self.rollout: Machines = tuple(zip(columns, map(self._machines, columns, self.most), strict=True))
        self.gangs = tuple((gang, self._gang(gang)) for gang in choice.gangs)

    def of(self, array: Floats) -> list[float]:
        """Return the entries of an array over the rows of the table that belong to `rollout`, in its order."""
        entries: list[float] = array[list(self.choice.rollout)].tolist()
        return entries

    def charge(self, bill: Bill, variable: Variable, usd_per_hour: float) -> None:
        """Put a variable's price on a bill."""
        bill.terms.append((variable, usd_per_hour))
        if self.pace is None or self.choice.usd_per_sample_s is not None:
            self.model.add_cost(variable, usd_per_hour)

    def charge_by_pace(self, bill: Bill, flag: Variable, usd_per_hour: float) -> None:
        """Put a flag's price on a bill that grows in proportion to the throughput; the price is that of the low end.

        In models with `grows_egress` flag times throughput is a variable too, with no choice, as the flag is 0 or 1.
        """
        if self.pace is None or not self.choice.grows_egress or usd_per_hour == 0.0:
            self.charge(bill, flag, usd_per_hour)
            return
        low, high = self.useful.samples_per_s, self.useful.top
        busy = self.model.add_variable()
        self.charge(bill, busy, usd_per_hour / low)
        if usd_per_hour > 0:
            self.model.add_row(UNNAMED, [(busy, 1.0), (flag, -low)], lower=0.0)
            self.model.add_row(UNNAMED, [(busy, 1.0), (self.pace, -1.0), (flag, -high)], lower=-high)
        else:
            self.model.add_row(UNNAMED, [(busy, 1.0), (flag, -high)], upper=0.0)
            self.model.add_row(UNNAMED, [(busy, 1.0), (self.pace, -1.0), (flag, -low)], upper=-low)

    def at_least(self, name: str, terms: Iterable[Term], share: float, slack: float = 0.0) -> None:
        """Add a rule whose sum must reach a share of the throughput, less some slack."""
        if self.pace is None:
            self.limit(name, terms, lower=share * self.choice.samples_per_s - slack)
        else:
            self.limit(name, [*terms, (self.pace, -share)], lower=-slack)

    def limit(self, name: str, terms: Iterable[Term], *, lower: float = -INFINITY, upper: float = INFINITY) -> None:
        """Add a rule with one bound."""
        self.model.add_row(name, list(terms), lower=lower, upper=upper)

    def offer(self, column: RolloutColumn | TrainerColumn) -> Offer:
        """Return the offer a column uses."""
        return self.problem.offers[column.offer_id]

    def flag(self, machines: Iterable[Term]) -> Variable:
        """Return a variable that is 1 when any of these machines is used; a row for each keeps the relaxation tight."""
        used = self.model.add_variable(upper=1.0, integer=True)
        for variable, _ in machines:
            limit = self.model.upper(variable)
            self.model.add_row(UNNAMED, [(variable, 1.0), (used, -min(limit, _MANY))], upper=0.0)
        return used

    def _pace(self) -> Variable | None:
        """The throughput, where it is a variable: in a range, and with somebody who trains."""
        if self.useful.up_to is None or not self.choice.gangs:
            return None
        worth = self.choice.usd_per_sample_s
        cost = -1.0 if worth is None else -worth
        return self.model.add_variable(cost=cost, lower=self.useful.samples_per_s, upper=self.useful.up_to)

    def _machines(self, column: RolloutColumn, most: float) -> Variable:
        machines = self.model.add_variable(upper=most, integer=True)
        self.charge(self.rent, machines, column.nodes * self.offer(column).usd_per_hour)
        return machines

    def _gang(self, gang: TrainerColumn) -> Variable:
        offer = self.offer(gang)
        chosen = self.model.add_variable(upper=1.0, integer=True)
        self.charge(self.rent, chosen, gang.nodes * offer.usd_per_hour)
        starting = max(0, gang.nodes - self.problem.limits.running(offer.id, Role.TRAINER))
        self.charge(self.one_off, chosen, starting * self.problem.new_machine_usd_per_hour(offer))
        return chosen


def by_unit(members: Machines) -> dict[tuple[OfferId, int], list[Variable]]:
    """Group rollout variables by the offer their columns use and the machines of a unit."""
    units: dict[tuple[OfferId, int], list[Variable]] = defaultdict(list)
    for column, machines in members:
        units[column.offer_id, column.nodes].append(machines)
    return units


def ones(variables: Iterable[Variable]) -> list[Term]:
    """Return terms that count variables."""
    return [(variable, 1.0) for variable in variables]
