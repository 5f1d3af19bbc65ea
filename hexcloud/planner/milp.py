"""A thin typed model builder over HiGHS: named rows in, a solution with its proof out. The only user of highspy.

Single-threaded, fixed seed, stops on gap and node count, so the same model always gives the same answer.
"""

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

import highspy
import numpy as np
from numpy.typing import NDArray

Variable = NewType("Variable", int)
Term = tuple[Variable, float]

INFINITY = float("inf")
BINDING_TOLERANCE = 1e-6
"""A row counts as binding when it is this close to its limit, relative to the limit's size."""
_CAP_TOLERANCE = 1e-9
_FEASIBILITY = 1e-9
"""How far a row may be missed: throughputs are compared to a ten-millionth."""
_STDOUT = 1


_HEURISTICS = (
    "mip_heuristic_run_feasibility_jump",
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
)


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """Proven within the gap asked for."""
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    """The node limit came first."""


@dataclass(frozen=True)
class Solution:
    """The solver's answer. `values` is indexed by Variable and empty unless there is a feasible point."""

    status: Status
    objective: float
    bound: float
    """No feasible point has a lower objective."""
    nodes: int
    values: tuple[float, ...] = ()
    binding: tuple[str, ...] = ()
    """Names of rows at their limit."""
    duals: Mapping[str, float] = field(default_factory=dict)
    """Of relaxed solves: what one unit more of a named row's limit adds to the objective."""

    def count(self, variable: Variable) -> int:
        """Return the value of an integer variable, freed of the solver's tolerance."""
        return round(self.values[variable])


class Model:
    """A minimisation problem under construction. Variables are not negative unless `lower` says otherwise."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._rows: list[str] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._starts: list[int] = [0]
        self._indices: list[int] = []
        self._coefficients: list[float] = []
        self._cap = INFINITY

    def add_variable(
        self, *, cost: float = 0.0, upper: float = INFINITY, lower: float = 0.0, integer: bool = False
    ) -> Variable:
        """Add a variable with its objective coefficient and return its handle."""
        self._cost.append(cost)
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)
        return Variable(len(self._cost) - 1)

    def upper(self, variable: Variable) -> float:
        """Return a variable's upper bound."""
        return self._upper[variable]

    def fix(self, variable: Variable, value: float) -> None:
        """Let a variable have one value only."""
        self._lower[variable] = self._upper[variable] = value

    def add_cost(self, variable: Variable, cost: float) -> None:
        """Add to the objective coefficient of a variable."""
        self._cost[variable] += cost

    def add_row(self, name: str, terms: Iterable[Term], *, lower: float = -INFINITY, upper: float = INFINITY) -> None:
        """Add `lower <= sum(coefficient * variable) <= upper`. A variable may appear once per row.

        Rows with an empty name are never reported as binding.
        """
        for variable, coefficient in terms:
            self._indices.append(variable)
            self._coefficients.append(coefficient)
        self._rows.append(name)
        self._row_lower.append(lower)
        self._row_upper.append(upper)
        self._starts.append(len(self._indices))

    def cap_objective(self, upper: float) -> None:
        """Cut off points whose objective is over `upper`; the solver gives up a hopeless model at its root.

        It is the solver's own cutoff and no row: a row with the objective's coefficients makes every relaxation
        degenerate, which doubles the time.
        """
        self._cap = min(self._cap, upper)

    def minimise(self, *, gap: float, node_limit: int, relaxed: bool = False, presolve: bool = True) -> Solution:
        """Solve; `relaxed` lets integers be fractions, which gives a lower bound quickly.

        `presolve` is HiGHS's own; models that it makes harder go without.
        """
        solver = _new_solver()
        if not presolve:
            solver.setOptionValue("presolve", "off")
        solver.setOptionValue("mip_rel_gap", gap)
        solver.setOptionValue("mip_abs_gap", 0.0)
        solver.setOptionValue("mip_max_nodes", node_limit)
        if not relaxed:
            solver.setOptionValue("objective_bound", self._cap)
        solver.passModel(self._as_highs(relaxed))
        solver.run()
        return self._solution(solver)

    def _as_highs(self, relaxed: bool) -> highspy.HighsLp:
        lp = highspy.HighsLp()
        lp.num_col_ = len(self._cost)
        lp.num_row_ = len(self._rows)
        lp.col_cost_ = np.array(self._cost)
        lp.col_lower_ = np.array(self._lower)
        lp.col_upper_ = np.array(self._upper)
        lp.row_lower_ = np.array(self._row_lower)
        lp.row_upper_ = np.array(self._row_upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._starts)
        lp.a_matrix_.index_ = np.array(self._indices)
        lp.a_matrix_.value_ = np.array(self._coefficients)
        if not relaxed and any(self._integer):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[flag] for flag in self._integer]
        return lp

    def _solution(self, solver: highspy.Highs) -> Solution:
        status = _status(solver.getModelStatus())
        info = solver.getInfo()
        nodes = max(0, int(info.mip_node_count))
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            bound = self._cap if status is Status.INFEASIBLE else -INFINITY
            return Solution(status, INFINITY, bound, nodes)
        point = solver.getSolution()
        objective = float(info.objective_function_value)
        if objective > self._cap * (1.0 + _CAP_TOLERANCE):
            # The solver never looked for a better point over the cap, so no more than the cap is proven.
            is_none = status is Status.OPTIMAL
            bound = self._cap if is_none else min(self._cap, float(info.mip_dual_bound))
            return Solution(Status.INFEASIBLE if is_none else status, INFINITY, bound, nodes)
        is_mip = nodes > 0 or info.mip_node_count >= 0
        bound = float(info.mip_dual_bound) if is_mip else objective
        return Solution(
            status=status,
            objective=objective,
            bound=min(bound, objective),
            nodes=nodes,
            values=tuple(point.col_value),
            binding=self._binding(point.row_value),
            duals={} if is_mip else dict(zip(self._rows, point.row_dual, strict=True)),
        )

    def _binding(self, activities: Iterable[float]) -> tuple[str, ...]:
        lower, upper, activity = np.array(self._row_lower), np.array(self._row_upper), np.array(activities)
        touches = (lower != upper) & (_touches(activity, lower) | _touches(activity, upper))
        return tuple(name for name, is_binding in zip(self._rows, touches.tolist(), strict=True) if name and is_binding)


def _touches(activity: NDArray[np.float64], limit: NDArray[np.float64]) -> NDArray[np.bool_]:
    near: NDArray[np.bool_] = np.abs(activity - limit) <= BINDING_TOLERANCE * np.maximum(1.0, np.abs(limit))
    return near & np.isfinite(limit)


def _status(status: highspy.HighsModelStatus) -> Status:
    if status == highspy.HighsModelStatus.kOptimal:
        return Status.OPTIMAL
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Status.INFEASIBLE
    return Status.STOPPED


def _new_solver() -> highspy.Highs:
    _silence_banner()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("parallel", "off")
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_feasibility_tolerance", _FEASIBILITY)
    solver.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
    solver.setOptionValue("mip_allow_restart", False)  # restarts triple the time of models as small as ours
    for heuristic in _HEURISTICS:  # trees of a few dozen nodes find their own incumbents; these take three quarters
        solver.setOptionValue(heuristic, False)
    return solver


@functools.cache
def _silence_banner() -> None:
    """Build one solver while file descriptor 1 points nowhere.

    The first construction in a process writes a banner to the C-level stdout, before any option can be set and past
    `contextlib.redirect_stdout`. Callers print JSON there.
    """
    try:
        saved = os.dup(_STDOUT)
    except OSError:  # a daemon may have closed it: then nothing can be spoilt
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDOUT)
        highspy.Highs()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(saved, _STDOUT)
        os.close(saved)
        os.close(nowhere)
