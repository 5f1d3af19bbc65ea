import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.planner.milp import INFINITY, Model, Status, Variable


def knapsack() -> tuple[Model, Variable, Variable]:
    """7 units at least, from pieces of 2 (price 3) and 1.2 (price 2)."""
    model = Model()
    large = model.add_variable(cost=3.0, upper=10, integer=True)
    small = model.add_variable(cost=2.0, upper=10, integer=True)
    model.add_row("need", [(large, 2.0), (small, 1.2)], lower=7.0)
    return model, large, small


def test_whole_numbers_cost_more_than_their_relaxation() -> None:
    model, large, small = knapsack()
    solution = model.minimise(gap=0.0, node_limit=1000)
    assert (solution.count(large), solution.count(small)) == (3, 1)
    assert solution.objective == pytest.approx(11.0)
    assert solution.bound == pytest.approx(11.0)
    assert model.minimise(gap=0.0, node_limit=1000, relaxed=True).objective == pytest.approx(10.5)
    assert model.minimise(gap=0.0, node_limit=1000, presolve=False).objective == pytest.approx(11.0)


def test_rows_at_their_limit_are_named_and_nameless_rows_are_not() -> None:
    model, large, _ = knapsack()
    model.add_cost(large, -0.5)
    model.add_row("most", [(large, 1.0)], upper=2.0)
    model.add_row("", [(large, 1.0)], upper=2.0)
    model.add_row("far", [(large, 1.0)], upper=9.0)
    assert model.minimise(gap=0.0, node_limit=1000).binding == ("most",)


def test_impossible_rows_are_infeasible_with_an_infinite_bound() -> None:
    model, large, small = knapsack()
    model.add_row("cap", [(large, 1.0), (small, 1.0)], upper=1.0)
    solution = model.minimise(gap=0.0, node_limit=1000)
    assert solution.status is Status.INFEASIBLE
    assert solution.bound == INFINITY
    assert solution.values == ()


def test_a_capped_objective_cuts_off_dearer_points() -> None:
    model, *_ = knapsack()
    model.cap_objective(11.0)
    assert model.minimise(gap=0.0, node_limit=1000).objective == pytest.approx(11.0)
    model.cap_objective(10.9)
    assert model.minimise(gap=0.0, node_limit=1000).status is Status.INFEASIBLE


def test_cost_can_be_added_later() -> None:
    model, large, _ = knapsack()
    model.add_cost(large, 10.0)
    assert model.minimise(gap=0.0, node_limit=1000).count(large) == 0


def test_node_limit_stops_without_a_proof() -> None:
    model = Model()
    pieces = [model.add_variable(cost=-1.0 - (7 * index % 5) / 10, upper=1, integer=True) for index in range(40)]
    for row in range(20):
        terms = [(piece, 1.0 + (index * 13 + row * 7) % 11) for index, piece in enumerate(pieces)]
        model.add_row(f"room{row}", terms, upper=50.5)
    assert model.minimise(gap=0.0, node_limit=0).status is Status.STOPPED


def test_a_model_that_is_stopped_with_a_point_over_its_cap_has_not_proven_the_cap() -> None:
    """Else what was never searched would count as ruled out."""
    model = Model()
    pieces = [model.add_variable(cost=2.0 + (8 * index % 13) / 10, upper=1, integer=True) for index in range(40)]
    for row in range(20):
        terms = [(piece, 1.0 + (index * 13 + row * 7) % 11) for index, piece in enumerate(pieces)]
        model.add_row(f"need{row}", terms, lower=51.5)
    best = model.minimise(gap=0.0, node_limit=100_000)
    assert best.status is Status.OPTIMAL
    model.cap_objective(best.objective * 1.02)
    stopped = [model.minimise(gap=0.0, node_limit=limit) for limit in (1, 3)]
    assert all(one.status is Status.STOPPED and not one.values for one in stopped)
    assert all(0.0 < one.bound <= best.objective for one in stopped)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_bound_is_never_above_the_answer(prices: list[int], need: int) -> None:
    model = Model()
    pieces = [model.add_variable(cost=float(price), upper=50, integer=True) for price in prices]
    model.add_row("need", [(piece, 1.0 + i) for i, piece in enumerate(pieces)], lower=float(need))
    solution = model.minimise(gap=0.0, node_limit=1000)
    assert solution.bound <= solution.objective + 1e-9


def test_first_solve_of_a_process_writes_nothing_to_standard_output() -> None:
    program = (
        "import json\n"
        "from hexcloud.planner.milp import Model\n"
        "model = Model()\n"
        "x = model.add_variable(cost=1.0, upper=5, integer=True)\n"
        "model.add_row('need', [(x, 2.0)], lower=3.0)\n"
        "print(json.dumps(model.minimise(gap=0.0, node_limit=10).count(x)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == 2
    assert done.stdout.strip() == "2"


def test_solver_works_in_a_process_without_standard_output() -> None:
    program = (
        "import os, sys\n"
        "os.close(1)\n"
        "from hexcloud.planner.milp import Model\n"
        "model = Model()\n"
        "x = model.add_variable(cost=1.0, upper=5, integer=True)\n"
        "model.add_row('need', [(x, 2.0)], lower=3.0)\n"
        "sys.stderr.write(str(model.minimise(gap=0.0, node_limit=10).count(x)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.strip() == "2"
