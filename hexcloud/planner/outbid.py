"""outbid: a plan that no simpler buyer does cheaper.

Plan and buyers are each found within the gap, so that a buyer may come out under the plan by as much. What he takes the
plan may take too: his machines then are the plan, and no price beside it is under its own.
"""

from typing import NamedTuple

from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import PlanResult
from hexcloud.domain.policy import Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.workload import Workload
from hexcloud.planner.baselines import bids, by_price
from hexcloud.planner.plan import remade
from hexcloud.planner.search import Found
from hexcloud.planner.shop import CANNOT, Bid

_HAIR = 1e-9
"""Relative: two sums of the same prices."""


class Compared(NamedTuple):
    """A plan, and what simpler buyers pay for its throughput: none of them less."""

    result: PlanResult
    rows: tuple[BaselineRow, ...]


def compared(
    market: Market,
    workload: Workload,
    policy: Policy,
    result: PlanResult,
    picks: frozenset[OfferId] = frozenset(),
) -> Compared:
    """Return a new run's plan beside its baselines, with the machines of the cheapest buyer where he pays less.

    The throughput stays: for all objectives less USD/h for it is better. `picks`: see `baselines`.
    """
    plan = result.plan.allocation
    found = [_under_cap(bid, policy, plan.usd_per_hour) for bid in bids(market, workload, policy, plan, picks)]
    found.sort(key=by_price)
    best = found[0].found
    if best is not None and _is_less(best.solution.objective, plan.usd_per_hour):
        result = remade(market, workload, policy, plan, best)
    return Compared(result, tuple(bid.row for bid in found))


def _is_less(usd_per_hour: float, than: float) -> bool:
    return usd_per_hour < than * (1.0 - _HAIR)


def _under_cap(bid: Bid, policy: Policy, plan_usd_per_hour: float) -> Bid:
    """Return a buyer, who cannot where he seems cheaper only because the cap on the price does not bind him.

    Prices have expected losses in them and what the cap is on has not: a buyer who risks less may pay more and still
    seem cheaper.
    """
    cap, found = policy.max_usd_per_hour, bid.found
    if cap is None or found is None or not _is_less(found.solution.objective, plan_usd_per_hour):
        return bid
    if _bill_usd_per_hour(found) <= cap * (1.0 + _HAIR):
        return bid
    return Bid.none(bid.row.name, f"{CANNOT} for the plan's cap of {cap:.2f} USD/h")


def _bill_usd_per_hour(found: Found) -> float:
    """Return what is paid: no expected losses."""
    rules = found.rules
    return sum(bill.usd_per_hour(found.solution) for bill in (rules.rent, rules.egress, rules.one_off))
