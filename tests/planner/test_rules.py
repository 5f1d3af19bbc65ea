import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.milp import Solution
from hexcloud.planner.problem import Problem
from hexcloud.planner.rules import Choice, RuleModel, by_unit
from hexcloud.planner.useful import Useful
from tests.planner.solving import MakeMarket, MakeOffer, column, gang

LOW, HIGH = 4.0, 9.0


def ruled(market: Market, workload: Workload, policy: Policy, up_to: float | None = None) -> RuleModel:
    """A model without any rule yet, at LOW samples/s or from there to `up_to`."""
    columns = Columns(rollout=tuple(map(column, market.offers)), trainer=(gang(market.offers[0]),))
    problem = Problem(columns, market, workload, policy, FleetState())
    rows = tuple(range(len(problem.rollout)))
    return RuleModel(Choice(Useful(problem, LOW, up_to), rows, problem.gangs, None, grows_egress=True))


def solution(rules: RuleModel) -> Solution:
    return rules.model.minimise(gap=0.0, node_limit=100)


def test_a_flag_is_set_as_soon_as_one_machine_is_used_and_its_price_is_on_the_bill(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer(usd_per_hour=3.0), make_offer(instance_type="lean8", usd_per_hour=5.0))
    for used in (0.0, 1.0):
        rules = ruled(market, workload, policy)
        flag = rules.flag([(machines, 1.0) for _, machines in rules.rollout])
        rules.charge(rules.egress, flag, 7.0)
        rules.model.fix(rules.rollout[1][1], used)
        found = solution(rules)
        assert rules.egress.usd_per_hour(found) == 7.0 * used
        assert rules.rent.usd_per_hour(found) == rules.offer(rules.rollout[1][0]).usd_per_hour * used


@pytest.mark.parametrize("usd_per_hour", [2.0, -2.0])
@pytest.mark.parametrize("is_used", [0.0, 1.0])
def test_in_a_range_a_price_may_grow_with_the_throughput_that_is_chosen(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    usd_per_hour: float,
    is_used: int,
) -> None:
    rules = ruled(make_market(make_offer()), workload, policy, up_to=HIGH)
    flag = rules.model.add_variable(upper=1.0, integer=True)
    rules.model.fix(flag, is_used)
    rules.charge_by_pace(rules.egress, flag, usd_per_hour)
    assert rules.pace is not None
    found = solution(rules)  # nothing limits it, and cost counts for nothing: as fast as can be
    assert found.values[rules.pace] == HIGH
    rules.model.fix(rules.pace, 6.0)
    charged = next(variable for variable, _ in rules.egress.terms)
    rules.model.add_cost(charged, usd_per_hour)  # the way that a solver would cheat
    assert rules.egress.usd_per_hour(solution(rules)) == pytest.approx(usd_per_hour * 6.0 / LOW * is_used)


def test_columns_of_one_offer_and_size_are_one_unit(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    rules = ruled(make_market(make_offer(), make_offer(instance_type="lean8")), workload, policy)
    (first, one), (second, other) = rules.rollout
    wide = first.model_copy(update={"nodes": 2})
    assert by_unit(((first, one), (second, other), (first, other), (wide, one))) == {
        (first.offer_id, 1): [one, other],
        (second.offer_id, 1): [other],
        (first.offer_id, 2): [one],
    }
