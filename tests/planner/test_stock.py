from collections.abc import Callable
from datetime import UTC, datetime, timedelta

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


def test_a_quota_over_all_regions_that_is_used_up_refuses_a_machine(
    make_offer: MakeOffer, make_market: MakeMarket
) -> None:
    offer = make_offer(quota="here", quota_units=8, quota_global="all")
    quotas = (Quota(key="here", left=64), Quota(key="all", left=7))
    refusal = Stock(make_market(offer, quotas=quotas), Policy(), FleetState()).refusal(offer)
    assert refusal == ("quota", "takes 8 units of all, 7 are left")


READ = datetime(2026, 7, 1, tzinfo=UTC)


def ready_at(fleet: FleetState, ready_at_s: float | None) -> tuple[Node, ...]:
    return tuple(node.model_copy(update={"ready_at_s": ready_at_s}) for node in fleet.nodes)


@pytest.mark.parametrize(
    ("before", "after", "starting", "most", "is_refused"),
    [(0, 0, 0, 32, False), (2, 0, 0, 64, False), (0, 1, 0, 32, False), (0, 0, 2, 32, True), (2, 1, 1, 64, True)],
)
def test_machines_of_ours_that_ran_when_the_quota_was_read_are_not_in_what_was_left(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    before: int,
    after: int,
    starting: int,
    most: int,
    is_refused: bool,
) -> None:
    """32 were left then: that is what may be added to those that ran, less what has been started since."""
    offer, read_s = make_offer(quota="q", quota_units=16), READ.timestamp()
    nodes = [
        *ready_at(running(offer, before), read_s - 60),
        *ready_at(running(offer, after), read_s + 60),
        *ready_at(running(offer, starting), None),
    ]
    quota = Quota(key="q", left=32, as_of=READ)
    stock = Stock(make_market(offer, quotas=(quota,)), Policy(), FleetState(nodes=tuple(nodes)))
    assert stock.most_units(quota) == most
    assert (stock.refusal(offer) is not None) == is_refused


def test_what_runs_may_stay_also_over_the_quota(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    offer = make_offer(quota="q", quota_units=16)
    quota = Quota(key="q", left=8)
    assert Stock(make_market(offer, quotas=(quota,)), Policy(), running(offer, 3)).most_units(quota) == 48


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


def test_an_old_price_of_the_cloud_itself_is_to_be_read_again_and_the_snapshots_stays(
    make_offer: MakeOffer, make_market: MakeMarket
) -> None:
    bundled = make_offer()
    bundled = bundled.model_copy(update={"as_of": bundled.as_of - timedelta(hours=30)})
    live = bundled.model_copy(update={"source": bundled.cloud})
    policy = Policy(max_live_price_age_h=24)
    refusal = Stock(make_market(live), policy, FleetState()).refusal(live)
    assert refusal is not None and refusal[0] == "price_age"
    assert f"over 24 h old; read it again: hexcloud catalog refresh --cloud {live.cloud}" in refusal[1]
    assert Stock(make_market(live), policy, running(live, 1)).most(live) == 1
    assert Stock(make_market(bundled), policy, FleetState()).most(bundled) == 8
    both = policy.model_copy(update={"max_price_age_h": 12.0})
    assert Stock(make_market(bundled), both, FleetState()).most(bundled) == 0


def test_old_price_starts_no_new_machine(make_offer: MakeOffer, make_market: MakeMarket) -> None:
    fresh = make_offer()
    old = fresh.model_copy(update={"as_of": fresh.as_of - timedelta(hours=30)})
    policy = Policy(max_price_age_h=24)
    assert Stock(make_market(old), policy, FleetState()).most(old) == 0
    assert Stock(make_market(old), policy, running(old, 1)).most(old) == 1
    assert Stock(make_market(fresh), policy, FleetState()).most(fresh) == 8
