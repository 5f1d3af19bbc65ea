"""listed: the problem that a market poses: the offers that wishes allow, with all their columns."""

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen


def listed(market: Market, workload: Workload, policy: Policy, fleet: FleetState | None = None) -> Problem:
    """Return the problem that `make_plan` solves; without a fleet, nothing runs yet."""
    fleet = fleet or FleetState()
    columns, _ = build_columns(screen(market, workload, policy, fleet).offers, market, workload, policy)
    return Problem(columns, market, workload, policy, fleet)
