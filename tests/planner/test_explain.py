from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.explain import WhyNotKind, binding_in_words, notable_gpus, rejected_counts, rule_in_words, why_not
from hexcloud.planner.plan import make_plan

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


def at_price(market: Market, offer_id: OfferId, usd_per_hour: float) -> Market:
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": usd_per_hour}) if offer.id == offer_id else offer
        for offer in market.offers
    )
    return market.model_copy(update={"offers": offers})


def used(market: Market, workload: Workload, policy: Policy) -> set[OfferId]:
    plan = make_plan(market, workload, policy, FleetState()).plan
    return {slot.offer_id for slot in plan.placement.slots}


def test_a_name_that_no_offer_has_is_said_to_be_unknown(market: Market, workload: Workload, policy: Policy) -> None:
    answer = why_not("h100x", market, workload, policy)
    assert (answer.kind, answer.matches) == (WhyNotKind.UNKNOWN, 0)
    assert "h100x" in answer.reason


def test_an_offer_of_the_plan_is_said_to_be_in_it(market: Market, workload: Workload, policy: Policy) -> None:
    for offer_id in used(market, workload, policy):
        assert why_not(offer_id, market, workload, policy).kind is WhyNotKind.CHOSEN


def test_a_refused_offer_names_the_rule(market: Market, workload: Workload, policy: Policy) -> None:
    elsewhere = policy.model_copy(update={"regions": ("us-two",)})
    answer = why_not("acme/us-one/a/big8/on_demand", market, workload, elsewhere)
    assert (answer.kind, answer.rule) == (WhyNotKind.REFUSED, "region")
    assert "us-one" in answer.reason


def test_a_glob_speaks_of_the_match_that_comes_nearest_to_being_in(
    market: Market, workload: Workload, policy: Policy
) -> None:
    answer = why_not("acme/us-one/*/lean*", market, workload, policy)
    assert answer.matches == 2
    each = [why_not(f"acme/us-one/a/{kind}/on_demand", market, workload, policy) for kind in ("lean1", "lean8")]
    extras = [one.extra_usd_per_hour for one in each if one.extra_usd_per_hour is not None]
    assert answer.extra_usd_per_hour == pytest.approx(min(extras), abs=0.02)


def test_a_dear_offer_comes_in_at_the_price_it_is_told(market: Market, workload: Workload, policy: Policy) -> None:
    answer = why_not("acme/us-one/a/lean8/on_demand", market, workload, policy)
    assert answer.kind is WhyNotKind.TOO_DEAR
    assert answer.offer_id is not None
    assert answer.extra_usd_per_hour is not None and answer.extra_usd_per_hour > 0
    assert answer.enters_at_usd_per_hour is not None
    below = at_price(market, answer.offer_id, answer.enters_at_usd_per_hour)
    assert answer.offer_id in used(below, workload, policy)
    told = float(answer.reason.split("come in at ")[1].split()[0])
    assert 0 <= answer.enters_at_usd_per_hour - told < 1e-4
    assert "costs 0.1% less than any without" in answer.reason


def test_the_plan_with_the_offer_really_costs_that_much_more(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    """Two equal machines in one zone: the dear one costs the difference, and comes in at the other's price."""
    twin = {"id": OfferId("acme/us-one/a/lean8x/on_demand"), "instance_type": "lean8x"}
    dear = make_offer("lean8", 9.0).model_copy(update=twin)
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 5.0), dear)
    answer = why_not("lean8x", market, workload, policy)
    assert answer.extra_usd_per_hour == pytest.approx(4.0, rel=0.05)
    assert answer.enters_at_usd_per_hour == pytest.approx(5.0, rel=0.05)


def test_an_offer_whose_samples_are_always_too_old_can_come_in_at_no_price(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    slow = make_offer("lean1", 0.1, gpu="SLOW")
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 5.0), slow)
    crawling = market.gpus["LEAN"].model_copy(update={"name": "SLOW", "hbm_gb_per_s": 100.0, "bf16_tflops": 5.0})
    market = market.model_copy(update={"gpus": market.gpus | {"SLOW": crawling}})
    answer = why_not("lean1", market, workload, policy)
    assert (answer.kind, answer.rule) == (WhyNotKind.IMPOSSIBLE, "staleness_reach")
    assert "it could take part at up to" in answer.reason
    assert answer.enters_at_usd_per_hour is None


def test_a_slow_machine_has_a_price_at_which_it_comes_in_by_small_batches(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    slow = make_offer("lean8", 3.0, gpu="SLOW")
    market = make_market(make_offer("big8", 20.0), make_offer("big1", 4.0, zone="b"), slow)
    lean = {"name": "SLOW", "hbm_gib": 24.0, "hbm_gb_per_s": 600.0, "bf16_tflops": 70.0, "link_gb_per_s": 12.0}
    market = market.model_copy(update={"gpus": market.gpus | {"SLOW": market.gpus["LEAN"].model_copy(update=lean)}})
    answer = why_not("lean8", market, workload, policy.model_copy(update={"target_samples_per_s": 30_000 / 2048}))
    assert answer.enters_at_usd_per_hour is not None and answer.enters_at_usd_per_hour > 0
    assert "it would come in at " in answer.reason


def test_the_rules_that_keep_an_offer_out_are_not_that_it_was_asked_for(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0), make_offer("lean1", 1.0, tenure=Tenure.SPOT))
    answer = why_not("lean1", market, workload, policy.model_copy(update={"max_pools": 1, "target_samples_per_s": 5.0}))
    assert answer.kind is WhyNotKind.IMPOSSIBLE
    assert answer.rule and answer.rule != "require"
    assert "the plan must hold" not in answer.reason


def test_an_offer_that_costs_as_much_is_said_to_be_a_tie(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    twin = {"id": OfferId("acme/us-one/a/lean8x/on_demand"), "instance_type": "lean8x"}
    market = make_market(make_offer("big8", 20.0), make_offer("lean8", 5.0), make_offer("lean8", 5.001).twin(**twin))
    answer = why_not("lean8x", market, workload, policy)
    assert answer.kind is WhyNotKind.TOO_DEAR
    assert "cost as much, within the 0.1% that a plan may miss the best by; it would come in at 4.9" in answer.reason


def test_under_the_other_objective_the_same_question_has_an_answer_in_dollars(
    market: Market, workload: Workload, policy: Policy
) -> None:
    fastest = policy.model_copy(update={"objective": Objective.MAX_THROUGHPUT, "max_usd_per_hour": 40.0})
    answer = why_not("acme/us-one/b/big8/on_demand", market, workload, fastest)
    assert answer.kind is WhyNotKind.TOO_DEAR
    assert answer.extra_usd_per_hour is not None and answer.extra_usd_per_hour > 0


def test_rules_are_told_in_words() -> None:
    assert rule_in_words("stock[aws/x]") == "no more machines of aws/x can be had"
    assert rule_in_words("survive[aws/us-east-1]") == "enough rollout must remain when aws/us-east-1 is lost"
    assert rule_in_words("something_new") == "something_new"


def test_what_binds_a_plan_is_told_in_words(market: Market, workload: Workload, policy: Policy) -> None:
    allocation = make_plan(market, workload, policy, FleetState()).plan.allocation
    assert len(binding_in_words(allocation)) == len(allocation.proof.binding)


def test_rejections_are_counted_by_rule_most_first() -> None:
    rules = ["memory", "region", "region"]
    rejections = tuple(Rejection(offer_id=OfferId(str(n)), rule=rule, reason="") for n, rule in enumerate(rules))
    assert list(rejected_counts(rejections).items()) == [("region", 2), ("memory", 1)]


def test_gpus_that_the_plan_leaves_out_come_by_the_price_of_their_bandwidth(
    make_market: MakeMarket, make_offer: MakeOffer, workload: Workload, policy: Policy
) -> None:
    market = make_market(
        make_offer("big8", 20.0),
        make_offer("lean8", 90.0),
        make_offer("lean8", 30.0, zone="b", gpu="SLOW"),
        make_offer("lean1", 0.01, gpu="GHOST", proven=False),
    )
    slow, ghost = (market.gpus["LEAN"].model_copy(update={"name": name}) for name in ("SLOW", "GHOST"))
    market = market.model_copy(update={"gpus": market.gpus | {"SLOW": slow, "GHOST": ghost}})
    allocation = make_plan(market, workload, policy, FleetState()).plan.allocation
    assert notable_gpus(market, allocation) == ("SLOW", "LEAN")
