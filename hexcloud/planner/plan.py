"""make_plan: from a market to an execution plan, in the five steps of the design's table."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Allocation, PlanResult
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import solve, with_machines
from hexcloud.planner.columns import build_columns
from hexcloud.planner.partition import partition
from hexcloud.planner.place import place
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import Found


@contextmanager
def _cycles_wait() -> Iterator[None]:
    """Put off the search for cycles, and leave it as it was found.

    The columns of a whole market are so many new objects that they set off searches through everything that is alive, a
    fifth of a plan's time, and the only cycle in a plan is the small graph of its slots: the rest goes when it ends.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_cycles_wait()
def make_plan(
    market: Market, workload: Workload, policy: Policy, fleet: FleetState, start: Allocation | None = None
) -> PlanResult:
    """Return the plan that serves the policy best, and every offer that is not in it with the reason.

    `start` is an allocation that was good before prices moved: a price to beat, which saves time. Where its machines do
    the same for less than what is found within the gap, they are the plan. Pure: the same arguments give the same plan.
    Raises InfeasibleError and SolverStoppedError.
    """
    asked = _Asked.of(market, workload, policy, fleet)
    return asked.result(solve(asked.problem, start=start))


@_cycles_wait()
def remade(market: Market, workload: Workload, policy: Policy, plan: Allocation, found: Found) -> PlanResult:
    """Return a new run's plan with the machines of an answer that makes the same for less."""
    asked = _Asked.of(market, workload, policy, FleetState())
    return asked.result(with_machines(asked.problem, plan, found))


@dataclass(frozen=True)
class _Asked:
    """A problem, and what was turned away on the way to it."""

    problem: Problem
    offers: tuple[Offer, ...]
    screened: tuple[Rejection, ...]
    unusable: tuple[Rejection, ...]

    @classmethod
    def of(cls, market: Market, workload: Workload, policy: Policy, fleet: FleetState) -> "_Asked":
        screened = screen(market, workload, policy, fleet)
        columns, unusable = build_columns(screened.offers, market, workload, policy)
        problem = Problem(columns, market, workload, policy, fleet)
        return cls(problem, screened.offers, screened.rejections, unusable)

    def result(self, allocation: Allocation) -> PlanResult:
        """Return a solution as a plan."""
        market, fleet = self.problem.market, self.problem.fleet
        placement = place(allocation, fleet, market)
        plan = partition(placement, allocation, market, self.problem.workload, fleet)
        beaten = _beaten(self.offers, self.unusable, allocation)
        return PlanResult(plan=plan, rejections=(*self.screened, *self.unusable, *beaten))


def _beaten(
    offers: tuple[Offer, ...], unusable: tuple[Rejection, ...], allocation: Allocation
) -> tuple[Rejection, ...]:
    """Return the offers that could have been used and were not."""
    settled = {rejection.offer_id for rejection in unusable}
    settled |= {share.column.offer_id for share in allocation.rollout} | {allocation.trainer.column.offer_id}
    reason = "usable, but the plan does better without it"
    beaten = Rejection(offer_id=OfferId(""), rule="not_chosen", reason=reason)
    return tuple(beaten.twin(offer_id=offer.id) for offer in offers if offer.id not in settled)
