import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.useful import Useful
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def test_no_more_machines_are_useful_than_make_the_target_alone(
    market: Market, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(market, workload, policy)
    useful = Useful(problem, 10.0)
    columns = map(useful.column, range(len(useful.table)))
    for column, most, rate in zip(columns, useful.most, useful.rates, strict=True):
        assert 1 <= most <= problem.stock[column.offer_id]
        assert most == problem.stock[column.offer_id] or most * rate >= 10.0 * (1 - 1e-6)


def test_cores_for_rewards_may_ask_for_more_machines_than_the_rate(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    needs = []
    for vcpus in (64.0, 8.5):
        problem = problem_of(make_market(make_offer("big8", vcpus=vcpus)), workload, policy)
        needs.append(Useful(problem, 30.0).need[-1])
    assert needs[0] < needs[1] == pytest.approx(30.0 * workload.reward_cpu_s_per_sample / 0.5)


def test_a_cap_on_spot_keeps_more_on_demand_machines_useful(market: Market, workload: Workload, policy: Policy) -> None:
    free = problem_of(market, workload, policy)
    capped = problem_of(market, workload, policy.model_copy(update={"max_spot_share": 0.3}))
    needs = []
    for problem in (free, capped):
        useful = Useful(problem, 10.0)
        needs.append(float(useful.need[~useful.table.is_spot].max()))
    assert needs[1] > needs[0]
