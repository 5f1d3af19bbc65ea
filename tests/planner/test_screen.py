from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.screen import screen

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def test_every_offer_is_kept_or_rejected_once(market: Market, workload: Workload, policy: Policy) -> None:
    screened = screen(market, workload, policy.model_copy(update={"regions": ("us-two",)}), FleetState())
    names = [offer.id for offer in screened.offers] + [rejection.offer_id for rejection in screened.rejections]
    assert sorted(names) == sorted(offer.id for offer in market.offers)
    assert screened.rejections


@pytest.mark.parametrize(
    ("fields", "wishes", "rule"),
    [
        ({}, {"clouds": ("other",)}, "cloud"),
        ({}, {"regions": ("eu-*",)}, "region"),
        ({}, {"gpus": ("LEAN",)}, "gpu"),
        ({"tenure": Tenure.SPOT}, {"max_spot_share": 0.0}, "tenure"),
        ({"proven": False}, {}, "unproven"),
        ({"stock": 0}, {}, "stock"),
        ({"gpu": "NOBODY"}, {}, "gpu_facts"),
    ],
)
def test_an_offer_that_cannot_serve_says_why(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    fields: dict[str, object],
    wishes: dict[str, object],
    rule: str,
) -> None:
    offer = make_offer(**fields)
    screened = screen(make_market(offer), workload, Policy.model_validate(wishes), FleetState())
    assert [rejection.rule for rejection in screened.rejections] == [rule]
    assert screened.rejections[0].reason


def test_region_patterns_may_end_in_a_star(make_offer: MakeOffer, make_market: MakeMarket, workload: Workload) -> None:
    here, there = make_offer(region="us-one"), make_offer(region="eu-one")
    screened = screen(make_market(here, there), workload, Policy(regions=("us-*",)), FleetState())
    assert [offer.id for offer in screened.offers] == [here.id]


def test_gpus_without_bf16_and_too_small_machines_are_refused(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload
) -> None:
    offer = make_offer("big1")
    market = make_market(offer)
    big = market.gpus["BIG"]
    old = market.model_copy(update={"gpus": {"BIG": big.model_copy(update={"has_bf16": False})}})
    tiny = market.model_copy(update={"gpus": {"BIG": big.model_copy(update={"hbm_gib": 8.0})}})
    assert screen(old, workload, Policy(), FleetState()).rejections[0].rule == "bf16"
    assert screen(tiny, workload, Policy(), FleetState()).rejections[0].rule == "memory"


def test_kept_offers_carry_the_stock_a_plan_may_use(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload
) -> None:
    screened = screen(make_market(make_offer()), workload, Policy(max_nodes_per_pool=5), FleetState())
    assert screened.offers[0].stock == 5
