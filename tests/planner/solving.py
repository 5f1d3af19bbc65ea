"""Markets of a few offers, solved by the rule model."""

from collections.abc import Callable

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
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


def problem_of(market: Market, workload: Workload, policy: Policy) -> Problem:
    """Every column that the estimator knows."""
    columns, _ = build_columns(market.offers, market, workload, policy)
    return Problem(columns, market, workload, policy, FleetState())
