import pytest

from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.dials import Stand, turn
from hexcloud.planner.listed import listed


@pytest.fixture
def stand(market: Market, workload: Workload, policy: Policy) -> Stand:
    wishes = {"max_usd_per_hour": 90.0, "max_pools": 3, "max_spot_share": 0.5, "survival_share": 0.4}
    problem = listed(market, workload, policy.model_copy(update=wishes))
    return Stand(problem, problem.policy.target_samples_per_s or 0.0)


def test_a_step_is_a_thousand_tokens_or_a_tenth_of_what_is_made(stand: Stand) -> None:
    assert stand.step_tokens_per_s == 1000.0
    assert Stand(stand.problem, 1.0).step_tokens_per_s == pytest.approx(204.8)


@pytest.mark.parametrize(
    ("rule", "field", "value"),
    [
        ("hourly_budget", "max_usd_per_hour", 91.0),
        ("pools", "max_pools", 4),
        ("spot_share", "max_spot_share", 0.51),
        ("target", "target_samples_per_s", 19_000 / 2048),
    ],
)
def test_a_dial_moves_one_wish_by_a_unit(stand: Stand, rule: str, field: str, value: float) -> None:
    turned = turn(rule, stand)
    assert turned is not None
    before, after = stand.problem.policy.model_dump(), turned.problem.policy.model_dump()
    assert {name for name in before if before[name] != after[name]} == {field}
    assert after[field] == pytest.approx(value)


def test_faster_machines_leave_what_must_survive_where_it_is(stand: Stand) -> None:
    turned = turn("rollout_rate", stand)
    assert turned is not None
    k = turned.problem.rollout[0].samples_per_s / stand.problem.rollout[0].samples_per_s
    assert k == pytest.approx(20.0 / 19.0)
    assert turned.problem.policy.survival_share == pytest.approx(stand.problem.policy.survival_share * k)
    assert turned.problem.gangs == stand.problem.gangs


def test_one_pool_is_deeper_and_no_other(stand: Stand) -> None:
    name = sorted(stand.problem.offers)[0]
    turned = turn(f"stock[{name}]", stand)
    assert turned is not None
    before, after = stand.problem.stock, turned.problem.stock
    assert after == before | {name: before[name] + 1}


@pytest.mark.parametrize("rule", ["require[x]", "stock[gone]", "quota[gone]", "deadline", "one_gang"])
def test_what_has_no_dial_is_not_turned(stand: Stand, rule: str) -> None:
    assert turn(rule, stand) is None
