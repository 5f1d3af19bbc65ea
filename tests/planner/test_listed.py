from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.listed import listed
from hexcloud.planner.plan import make_plan


def test_it_is_the_problem_of_which_a_plan_is_the_answer(market: Market, workload: Workload, policy: Policy) -> None:
    choosy = policy.model_copy(update={"regions": ("us-one",)})
    problem = listed(market, workload, choosy)
    assert {offer.region for offer in problem.offers.values()} == {"us-one"}
    assert solve(problem) == make_plan(market, workload, choosy, FleetState()).plan.allocation
