from collections.abc import Callable

import pytest

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.milp import Solution
from hexcloud.planner.problem import Problem
from hexcloud.planner.rows import build
from hexcloud.planner.rules import Choice, RuleModel
from hexcloud.planner.useful import Useful

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]
TARGET = 5.0


def column(offer: Offer, samples_per_s: float = 6.0, batch: int = 64) -> RolloutColumn:
    return RolloutColumn(
        offer_id=offer.id, tp=1, replicas=1, batch=batch, samples_per_s=samples_per_s, generation_s=5.0
    )


def gang(offer: Offer, nodes: int = 1) -> TrainerColumn:
    return TrainerColumn(
        offer_id=offer.id, nodes=nodes, layout=Layout(ranks=8 * nodes), samples_per_s=10.0, step_s=25.6
    )


def solved(
    market: Market, workload: Workload, policy: Policy, source: Offer | None = None, fleet: FleetState | None = None
) -> tuple[RuleModel, Solution]:
    """Every offer may roll out; the first one may train."""
    rollout = tuple(column(offer) for offer in market.offers)
    gangs = (gang(source or market.offers[0]),)
    problem = Problem(Columns(rollout=rollout, trainer=gangs), market, workload, policy, fleet or FleetState())
    rules = build(Choice(Useful(problem, TARGET), tuple(range(len(problem.rollout))), problem.gangs, source))
    return rules, rules.model.minimise(gap=0.0, node_limit=1000)


@pytest.mark.parametrize(
    ("region", "zone", "usd_per_gb"),
    [("us-one", "a", 0.0), ("us-one", "b", 0.01), ("us-two", "a", 0.02), ("eu-one", "a", 0.09)],
)
def test_egress_is_one_copy_per_version_by_distance(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    region: str,
    zone: str,
    usd_per_gb: float,
) -> None:
    source, target = make_offer(stock=1), make_offer("lean8", region=region, zone=zone)
    rules, solution = solved(make_market(source, target), workload, policy, source)
    per_version = workload.version_bytes / 1e9 * usd_per_gb
    assert rules.egress.usd_per_hour(solution) == pytest.approx(per_version * 3600 * TARGET / 256, abs=1e-6)


def test_a_free_way_out_still_pays_between_the_zones_of_the_other_cloud(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """The source's cloud bills nothing, the target's cloud bills one copy from its first zone to its second."""
    source = make_offer(cloud="free", stock=1)
    zones = tuple(make_offer("lean8", zone=zone, stock=1) for zone in "ab")
    busy = workload.model_copy(update={"reward_cpu_s_per_sample": 20.0})
    rules, solution = solved(make_market(source, *zones), busy, policy, source)
    per_version = workload.version_bytes / 1e9 * 0.01
    assert rules.egress.usd_per_hour(solution) == pytest.approx(per_version * 3600 * TARGET / 256)
