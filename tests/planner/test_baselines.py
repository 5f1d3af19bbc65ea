import pytest

from hexcloud import wiring
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.baselines import DEAREST, SKYPILOT, baselines
from hexcloud.planner.plan import make_plan
from hexcloud.planner.shop import CANNOT


@pytest.fixture
def rows(market: Market, workload: Workload, policy: Policy) -> dict[str, BaselineRow]:
    return {row.name: row for row in baselines(market, workload, policy)}


def test_every_gpu_type_every_cloud_and_on_demand_has_a_row(rows: dict[str, BaselineRow]) -> None:
    assert {"only BIG, on-demand", "only LEAN, on-demand", "on-demand only", "only acme"} <= rows.keys()
    assert any(name.endswith(", any tenure") for name in rows)


def test_a_buyer_with_fewer_choices_never_pays_less(
    rows: dict[str, BaselineRow], market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    for row in rows.values():
        assert row.usd_per_hour is None or row.usd_per_hour >= plan.allocation.usd_per_hour * (1 - MIP_GAP)


def test_the_only_cloud_pays_what_the_plan_pays(
    rows: dict[str, BaselineRow], market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    assert rows["only acme"].usd_per_hour == pytest.approx(plan.allocation.usd_per_hour, rel=2 * MIP_GAP)


def test_a_single_type_row_is_what_a_policy_of_that_type_plans(
    rows: dict[str, BaselineRow], market: Market, workload: Workload, policy: Policy
) -> None:
    alone = policy.model_copy(update={"gpus": ("BIG",), "max_spot_share": 0.0})
    plan = make_plan(market, workload, alone, FleetState()).plan
    assert rows["only BIG, on-demand"].usd_per_hour == pytest.approx(plan.allocation.usd_per_hour, rel=2 * MIP_GAP)


def test_the_best_single_type_in_any_tenure_is_no_dearer_than_any_type_on_demand(rows: dict[str, BaselineRow]) -> None:
    best = next(row for row in rows.values() if row.name.endswith(", any tenure"))
    single = [row.usd_per_hour for row in rows.values() if row.name.endswith(", on-demand")]
    assert best.usd_per_hour is not None
    assert all(price is None or best.usd_per_hour <= price * (1 + 2 * MIP_GAP) for price in single)


def test_rows_are_sorted_by_price_and_end_with_those_who_cannot(
    market: Market, workload: Workload, policy: Policy
) -> None:
    fast = policy.model_copy(update={"target_samples_per_s": 40.0})
    rows = baselines(market, workload, fast)
    prices = [row.usd_per_hour for row in rows if row.usd_per_hour is not None]
    assert prices == sorted(prices)
    unable = [row for row in rows if row.usd_per_hour is None]
    assert unable == list(rows[len(prices) :])
    assert unable and all(row.reason for row in unable)


def test_the_cap_on_the_price_does_not_hide_a_baseline(market: Market, workload: Workload, policy: Policy) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    capped = policy.model_copy(update={"max_usd_per_hour": plan.allocation.usd_per_hour * 1.01})
    assert baselines(market, workload, capped) == baselines(market, workload, policy)


def test_for_most_throughput_baselines_buy_the_throughput_of_the_plan(
    market: Market, workload: Workload, policy: Policy
) -> None:
    fastest = policy.model_copy(
        update={"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None, "max_usd_per_hour": 40.0}
    )
    plan = make_plan(market, workload, fastest, FleetState()).plan
    same = policy.model_copy(update={"target_samples_per_s": plan.allocation.samples_per_s})
    rows, tuned = baselines(market, workload, fastest), baselines(market, workload, same)
    assert {row.name for row in rows} == {row.name for row in tuned}
    prices = [row.usd_per_hour for row in rows if row.usd_per_hour is not None]
    assert min(prices) >= plan.allocation.usd_per_hour * 0.998


def test_beside_a_plan_the_same_rows_stand_but_for_those_that_are_far_too_dear(
    rows: dict[str, BaselineRow], market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan.allocation
    for row in baselines(market, workload, policy, plan):
        price = rows[row.name].usd_per_hour if row.name in rows else None
        if price is not None and price <= DEAREST * plan.usd_per_hour * (1 - MIP_GAP):
            assert row.usd_per_hour == pytest.approx(price, rel=2 * MIP_GAP)
        else:
            assert row.usd_per_hour is None
            assert row.reason.startswith((CANNOT, "pays over "))


def test_a_buyer_who_pays_over_three_times_the_plan_is_not_priced(
    market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan.allocation
    bargain = plan.model_copy(update={"rent_usd_per_hour": plan.rent_usd_per_hour / 10})
    assert all(row.usd_per_hour is None for row in baselines(market, workload, policy, bargain))


@pytest.mark.parametrize(
    ("target", "wishes"),
    [
        ("20k", {"survival_share": 0.5}),
        ("8k", {"max_spot_share": 0.5, "survival_share": 0.7}),
        ("40k", {"max_spot_share": 0.0, "clouds": ("aws", "lambda", "nebius", "runpod")}),
    ],
)
def test_on_the_bundled_market_no_buyer_pays_less_than_the_plan(target: str, wishes: dict[str, object]) -> None:
    """benchmarks/vs_baselines.py asks a hundred times on the whole market."""
    given = wiring.snapshot_input(RunSpec(target=target))
    policy = given.policy.model_copy(update=wishes)
    plan = make_plan(given.market, given.workload, policy, FleetState()).plan.allocation
    prices = [row.usd_per_hour for row in baselines(given.market, given.workload, policy, plan) if row.usd_per_hour]
    assert len(prices) >= 3
    assert min(prices) >= plan.usd_per_hour * (1 - MIP_GAP)


def test_who_takes_the_picks_of_another_optimizer_never_pays_less(
    market: Market, workload: Workload, policy: Policy
) -> None:
    plan = make_plan(market, workload, policy, FleetState()).plan
    own = frozenset(slot.offer_id for slot in plan.placement.slots)
    dear = frozenset(offer.id for offer in market.offers if offer.instance_type == "big8")
    for picks, is_same in ((own, True), (dear, False)):
        rows = {row.name: row.usd_per_hour for row in baselines(market, workload, policy, plan.allocation, picks)}
        price = rows[SKYPILOT]
        assert price is not None and price >= plan.allocation.usd_per_hour * (1 - MIP_GAP)
        assert (price <= plan.allocation.usd_per_hour * (1 + MIP_GAP)) == is_same
    assert SKYPILOT not in {row.name for row in baselines(market, workload, policy, plan.allocation)}
