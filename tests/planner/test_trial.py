from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.search import cheapest
from hexcloud.planner.trial import raised, trial_at
from hexcloud.planner.useful import Useful
from tests.planner.oracle import FEWER, Makers, problems
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


@given(st.data())
@FEWER
def test_neither_floor_nor_its_rise_is_over_what_any_plan_pays(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    target = problem.policy.target_samples_per_s
    assert target is not None
    best = cheapest(replace(problem, keeps_all=True), target, 0.0)
    if best is None:
        return
    price = best.solution.objective
    trial = raised(trial_at(Useful(problem, target, is_eased=True)), price * 1.5)
    assert trial.least + trial.sites[0].least_usd_per_hour <= price * (1 + 1e-6)


@pytest.mark.parametrize(
    ("lean", "ceiling", "least"),
    [
        (("lean8", 12.0), 90.0, 20.28),  # one of the dear ones, or two
        (("lean8", 12.0), 60.0, 60.0 - 40.56),  # no more is asked than rules out the cheapest site
        (("lean8", 12.0), INFINITY, 16.07),
        (("lean8", 12.0), 58.0, 16.07),  # one site is left
        (("lean2", 0.8), 90.0, 5.13),  # six machines and a third
    ],
)
def test_whole_machines_are_counted_where_few_are_needed_and_several_sites_are_left(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    lean: tuple[str, float],
    ceiling: float,
    least: float,
) -> None:
    homes = [make_offer("big8", usd, region=f"us-{number}") for number, usd in enumerate((20.0, 21.0))]
    problem = problem_of(make_market(*homes, make_offer(*lean)), workload, policy)
    trial = trial_at(Useful(problem, 20.0, is_eased=True))
    assert raised(trial, ceiling).least == pytest.approx(least, abs=0.01)
