from hypothesis import given
from hypothesis import strategies as st

from hexcloud.planner.floor import rollout_floor
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.search import cheapest, held_in
from hexcloud.planner.useful import Useful
from tests.planner.oracle import FEWER, Makers, problems


@given(st.data())
@FEWER
def test_no_plan_is_under_the_floor_and_what_its_columns_add(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    target = problem.policy.target_samples_per_s
    assert target is not None
    useful = Useful(problem, target, is_eased=True)
    floor, best = rollout_floor(useful), cheapest(problem, target, 0.0)
    if best is None:
        return
    held = held_in(best)
    rollout = best.solution.objective - problem.gang_usd_per_hour(held.gang)
    assert floor.usd_per_hour <= rollout * (1 + 1e-6) + 1e-6
    exact = [useful.exact.column(row) for row in range(len(useful.exact.table))]
    for column, _ in held.rollout:
        extra = floor.extra_of(useful.exact)[exact.index(column)]
        assert floor.usd_per_hour + extra <= rollout * (1 + 1e-6) + 1e-6


@given(st.data())
@FEWER
def test_without_a_floor_there_is_no_plan(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    target = problem.policy.target_samples_per_s
    assert target is not None
    if rollout_floor(Useful(problem, target, is_eased=True)).usd_per_hour == INFINITY:
        assert cheapest(problem, target, 0.0) is None
