from collections.abc import Callable
from datetime import timedelta

import pytest

from hexcloud.domain.fleet import FleetState, Node, NodeId, NodeStatus, RunId
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.planner.stock import Stock

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def running(offer: Offer, count: int, status: NodeStatus = NodeStatus.READY) -> FleetState:
    return FleetState(
        nodes=tuple(
            Node(
                id=NodeId(f"n{index}"),
                run_id=RunId("run"),
                slot=SlotName(f"rollout-{index}"),
                attempt=0,
                role=Role.ROLLOUT,
                offer_id=offer.id,
                status=status,
                requested_at_s=0,
            )
            for index in range(count)
        )
    )


def test_depth_is_the_less_of_listing_and_policy(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    policy = Policy(max_nodes_per_pool=6)
    unknown, listed = make_offer(), make_offer(stock=3)
    assert Stock(make_market(unknown), policy, FleetState()).most(unknown) == 6
    assert Stock(make_market(listed), policy, FleetState()).most(listed) == 3


def test_a_quota_that_holds_no_machine_refuses_it(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    offer = make_offer(quota="q", quota_units=16)
    little, enough = (make_market(offer, quotas=(Quota(key="q", left=left),)) for left in (15, 16))
    assert Stock(little, Policy(), FleetState()).refusal(offer) == (
        "quota",
        "takes 16 units of q, 15 are left",
    )
    assert Stock(enough, Policy(), FleetState()).refusal(offer) is None


def test_what_runs_may_stay_when_a_pool_refuses_new_machines(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    offer = make_offer()
    fleet = running(offer, 3).model_copy(update={"sold_out": {offer.id: "no capacity"}})
    stock = Stock(make_market(offer), Policy(), fleet)
    assert stock.most(offer) == 3
    assert stock.refusal(offer) == ("sold_out", "refused us lately")


def test_lost_nodes_do_not_count(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    offer = make_offer(stock=0)
    assert Stock(make_market(offer), Policy(), running(offer, 2, NodeStatus.LOST)).most(offer) == 0


def test_running_machines_count_by_role(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    offer = make_offer()
    stock = Stock(make_market(offer), Policy(), running(offer, 2))
    assert stock.running(offer.id, Role.ROLLOUT) == 2
    assert stock.running(offer.id, Role.TRAINER) == 0
    assert stock.running(offer.id) == 2


@pytest.mark.parametrize(("try_unproven", "launched", "most"), [(False, 0, 0), (True, 0, 1), (True, 1, 8)])
def test_unproven_capacity_is_tried_with_one_machine(
    make_offer: MakeOffer, make_market: MakeMarket, try_unproven: bool, launched: int, most: int
) -> None:
    offer = make_offer(proven=False)
    policy = Policy(try_unproven=try_unproven)
    assert Stock(make_market(offer), policy, running(offer, launched)).most(offer) == most


def test_old_price_starts_no_new_machine(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    fresh = make_offer()
    old = fresh.model_copy(update={"as_of": fresh.as_of - timedelta(hours=30)})
    policy = Policy(max_price_age_h=24)
    assert Stock(make_market(old), policy, FleetState()).most(old) == 0
    assert Stock(make_market(old), policy, running(old, 1)).most(old) == 1
    assert Stock(make_market(fresh), policy, FleetState()).most(fresh) == 8
