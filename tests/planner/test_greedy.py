import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.offer import Tenure
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.greedy import greedy_columns
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest
from tests.planner.solving import MakeMarket, MakeOffer, problem_of

TARGET = 20_000 / 2048


def price(problem: Problem, columns: Columns | Kinds) -> float:
    found = cheapest(Problem(columns, problem.market, problem.workload, problem.policy, problem.fleet), TARGET, MIP_GAP)
    assert found is not None
    return found.solution.objective


@pytest.mark.parametrize("survival", [0.0, 0.5, 0.8])
def test_a_greedy_buyer_keeps_every_rule_and_never_pays_less(
    market: Market, workload: Workload, policy: Policy, survival: float
) -> None:
    problem = problem_of(market, workload, policy.model_copy(update={"survival_share": survival}))
    picked = greedy_columns(problem, TARGET)
    assert price(problem, picked) >= price(problem, problem.columns) * (1 - MIP_GAP)


def test_a_greedy_buyer_takes_the_cheapest_gang_that_is_fast_enough(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    (gang,) = greedy_columns(problem, TARGET).trainer
    able = [one for one in problem.gangs if one.samples_per_s >= TARGET]
    assert problem.gang_usd_per_hour(gang) == min(problem.gang_usd_per_hour(one) for one in able)


def test_a_greedy_buyer_walks_into_the_egress_that_the_plan_avoids(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    """Rollout in another region is cheaper per hour, and each copy of the weights costs far more."""
    far = make_offer("lean8", 5.0, region="us-two")
    problem = problem_of(make_market(make_offer("big8", 20.0), make_offer("lean8", 8.0), far), workload, policy)
    picked = greedy_columns(problem, TARGET)
    assert {column.offer_id for column in picked.rollout} == {far.id}
    assert price(problem, picked) > price(problem, problem.columns) * 1.1


def test_a_spot_share_is_met_with_on_demand_machines(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy.model_copy(update={"max_spot_share": 0.5}))
    tenures = {problem.offers[column.offer_id].tenure for column in greedy_columns(problem, TARGET).rollout}
    assert tenures == {Tenure.SPOT, Tenure.ON_DEMAND}
    assert price(problem, greedy_columns(problem, TARGET)) >= price(problem, problem.columns) * (1 - MIP_GAP)


def test_who_cannot_train_picks_nothing(market: Market, workload: Workload, policy: Policy) -> None:
    problem = problem_of(market, workload, policy)
    assert greedy_columns(problem, 1e6) == Columns(rollout=(), trainer=())
