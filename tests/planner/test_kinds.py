from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Columns
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.kinds import Kinds
from hexcloud.planner.problem import Problem


def kinds_of(market: Market, workload: Workload, policy: Policy) -> Kinds:
    return build_columns(market.offers, market, workload, policy)[0]


def test_columns_one_by_one_are_those_of_the_kinds(market: Market, workload: Workload, policy: Policy) -> None:
    kinds = kinds_of(market, workload, policy)
    again = Kinds.of(Columns(rollout=kinds.rollout[::-1], trainer=kinds.trainer[::-1]))
    assert (again.rollout, again.trainer) == (kinds.rollout, kinds.trainer)
    assert len(again.ladders) > len(kinds.ladders)


def test_it_makes_no_difference_whether_equal_machines_share_their_columns(
    market: Market, workload: Workload, policy: Policy
) -> None:
    kinds = kinds_of(market, workload, policy)
    apart = Columns(rollout=kinds.rollout, trainer=kinds.trainer)
    plans = [solve(Problem(columns, market, workload, policy, FleetState()), gap=0.0) for columns in (kinds, apart)]
    assert plans[0] == plans[1]


def test_some_offers_keep_their_columns(market: Market, workload: Workload, policy: Policy) -> None:
    kinds = kinds_of(market, workload, policy)
    names = set(list(kinds.of_offers)[::2])
    some = kinds.only(names)
    assert some.rollout == tuple(column for column in kinds.rollout if column.offer_id in names)
    assert some.trainer == tuple(gang for gang in kinds.trainer if gang.offer_id in names)
    assert some.without_gangs().trainer == ()


def test_a_twin_rolls_out_like_its_offer_and_does_not_train(market: Market, workload: Workload, policy: Policy) -> None:
    kinds = kinds_of(market, workload, policy)
    name = next(gang.offer_id for gang in kinds.trainer)
    twin = OfferId(name + "+1")
    more = kinds.with_twin(name, twin)
    rolls = [column.model_dump(exclude={"offer_id"}) for column in more.rollout_of(twin)]
    assert rolls == [column.model_dump(exclude={"offer_id"}) for column in kinds.rollout_of(name)]
    assert not list(more.gangs_of(twin))
    assert list(more.of_offers) == sorted(more.of_offers)
