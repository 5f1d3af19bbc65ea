"""baselines: what a simpler buyer would pay. The same model with variables removed, at the plan's throughput."""

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import allocate
from hexcloud.planner.columns import build_columns
from hexcloud.planner.screen import screen
from hexcloud.planner.shop import Bid, open_shop

GREEDY = "greedy dollars per sample"
ON_DEMAND = "on-demand only"
SKYPILOT = "SkyPilot's places for the same GPUs"
DEAREST = 3.0
"""A buyer who pays over so many times the plan's price: the exact figure tells nobody anything and takes longest."""


def baselines(
    market: Market,
    workload: Workload,
    policy: Policy,
    plan: Allocation | None = None,
    picks: frozenset[OfferId] = frozenset(),
) -> tuple[BaselineRow, ...]:
    """Return what buyers with fewer choices pay per hour, cheapest first, then those who cannot.

    One GPU type on-demand (every type), one GPU type in any tenure (the best), on-demand of all types, one cloud, and
    the picks of who takes the best dollars per sample (`greedy`), of which the model then needs as few as it can; the
    same goes for `picks`, offers that SkyPilot's optimizer would take for the plan's GPUs. Every buyer has the same
    job, target and wishes but not the policy's cap on the price: a baseline over the cap is still a price. Prices are
    the MILP's objective, like `Allocation.usd_per_hour`: rent, egress, start-up spread over the horizon, risk. Where
    `plan` is given, buyers make what it makes and are not priced over DEAREST times its price; without it and without a
    target `allocate` finds the most, with its InfeasibleError and ConfigError.
    """
    return tuple(bid.row for bid in bids(market, workload, policy, plan, picks))


def bids(
    market: Market,
    workload: Workload,
    policy: Policy,
    plan: Allocation | None = None,
    picks: frozenset[OfferId] = frozenset(),
) -> tuple[Bid, ...]:
    """Return the same buyers with the machines that they would take."""
    samples_per_s = _samples_per_s(market, workload, policy, plan)
    shop = open_shop(market, workload, policy, samples_per_s, DEAREST * plan.usd_per_hour if plan else None)
    on_demand = shop.on_demand()
    found = [on_demand.bid(ON_DEMAND), shop.greedy().bid(GREEDY)]
    found += [on_demand.of_gpu(gpu).bid(f"only {gpu}, on-demand") for gpu in shop.values(lambda offer: offer.gpu)]
    found += [shop.of_cloud(cloud).bid(f"only {cloud}") for cloud in shop.values(lambda offer: offer.cloud)]
    found += [shop.only(lambda offer: offer.id in picks).bid(SKYPILOT)] if picks else []
    best = shop.best_single_type()
    found += [] if best is None else [Bid.of(f"only {best[0]}, any tenure", best[1])]
    return tuple(sorted(found, key=by_price))


def by_price(bid: Bid) -> tuple[bool, float, str]:
    """Order buyers: the cheapest first, then those who cannot."""
    row = bid.row
    return row.usd_per_hour is None, row.usd_per_hour or 0.0, row.name


def _samples_per_s(market: Market, workload: Workload, policy: Policy, plan: Allocation | None) -> float:
    """Return what every buyer must make: the target; without one, what the plan makes, or the most that can be had."""
    if policy.objective is Objective.MIN_COST and policy.target_samples_per_s:
        return policy.target_samples_per_s
    if plan is None:
        fleet = FleetState()
        columns, _ = build_columns(screen(market, workload, policy, fleet).offers, market, workload, policy)
        plan = allocate(columns, market, workload, policy, fleet)
    return plan.samples_per_s
