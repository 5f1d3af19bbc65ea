from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.alike import least_alike
from hexcloud.planner.columns import build_columns
from hexcloud.planner.floor import rollout_floor
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest, held_in
from hexcloud.planner.useful import Useful
from tests.planner.oracle import FEWER, Makers, problems

PACE = 3.0


def three_regions(makers: tuple[Callable[..., Offer], Callable[..., Market]], prices: tuple[float, ...]) -> Market:
    make_offer, make_market = makers
    rollout = [make_offer("lean8", price, region=f"us-{place}") for place, price in enumerate(prices)]
    return make_market(make_offer("big8", 20.0), *rollout)


def useful_of(market: Market, workload: Workload, policy: Policy) -> Useful:
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Useful(Problem(columns, market, workload, policy, FleetState()), PACE)


@given(st.data())
@FEWER
def test_no_plan_has_rollout_for_less(makers: Makers, data: st.DataObject) -> None:
    problem = data.draw(problems(makers))
    problem = replace(
        problem, slack=data.draw(st.sampled_from([{}, {"survive[acme/us-one/a/BIG]": 0.5, "in_flight": 99}]))
    )
    target = problem.policy.target_samples_per_s
    assert target is not None
    best = cheapest(replace(problem, keeps_all=True), target, 0.0)
    if best is None:
        return
    useful = Useful(problem, target)
    least = least_alike(useful, np.flatnonzero(useful.is_near), INFINITY)
    gang = problem.gang_usd_per_hour(held_in(best).gang)
    assert least.usd_per_hour <= best.solution.objective - gang + 1e-6


def test_a_machine_that_may_be_lost_is_bought_whole(
    make_offer: Callable[..., Offer], make_market: Callable[..., Market], workload: Workload, policy: Policy
) -> None:
    """Fractions of a machine in three regions would do; whole ones take two, wherever they stand."""
    careful = policy.model_copy(update={"survival_share": 0.7})
    useful = useful_of(three_regions((make_offer, make_market), (9.0, 9.5, 10.0)), workload, careful)
    least = least_alike(useful, np.flatnonzero(useful.is_near & (useful.rates > PACE)), INFINITY)
    assert least.usd_per_hour == pytest.approx(2 * useful.table.price.min())
    assert len(least.rows) > 0
    floor = rollout_floor(Useful(useful.problem, PACE, is_eased=True))
    assert floor.usd_per_hour < least.usd_per_hour * 0.9


def test_where_nothing_is_under_the_ceiling_that_is_the_bound(
    make_offer: Callable[..., Offer], make_market: Callable[..., Market], workload: Workload, policy: Policy
) -> None:
    useful = useful_of(three_regions((make_offer, make_market), (9.0, 9.5, 10.0)), workload, policy)
    near = np.flatnonzero(useful.is_near)
    for rows in (near, near[:0]):
        least = least_alike(useful, rows, 0.5)
        assert (least.usd_per_hour, len(least.rows)) == (0.5, 0)
