"""Budget: a hard cap, teardown included, with or without a living controller.

The worst case is always counted: every machine at its ceiling price, for as long as it can go on without another word
from us. What is granted (launches, spend lease) never lets `spent + worst case` pass the cap.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import Timing
from hexcloud.controller.prices import Prices
from hexcloud.domain.command import CHECKPOINT_EVERY
from hexcloud.domain.errors import BudgetError
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import ExecutionPlan, Role
from hexcloud.domain.run import RunRecord
from hexcloud.estimate.disk import disk_gib
from hexcloud.estimate.risk import startup_s

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Purse:
    """The money side of one turn."""

    seen: Seen
    timing: Timing
    spent_usd: float

    @property
    def left_usd(self) -> float | None:
        """What may still be spent; None without a cap."""
        cap = self.seen.run.policy.budget_usd
        return None if cap is None else cap - self.spent_usd

    def must_stop(self, nodes: Iterable[Node]) -> bool:
        """Is it time to checkpoint and tear down, so that the end of the bill stays under the cap?"""
        left_usd = self.left_usd
        return left_usd is not None and self.reserve_usd(nodes) >= left_usd

    def reserve_usd(self, nodes: Iterable[Node]) -> float:
        """Return what a last checkpoint and the end can cost, every machine at its ceiling price.

        We may die meanwhile: then they end by themselves, and the lease must not be cut before the checkpoint is.
        """
        timing = self.timing
        return self._usd(nodes, timing.poll_s + timing.checkpoint_s + timing.self_end_s + timing.teardown_s)

    def must_end(self, nodes: Iterable[Node]) -> bool:
        """Is there only the money left to end every machine at once?"""
        left_usd = self.left_usd
        return left_usd is not None and self._usd(nodes, self.timing.poll_s + self.timing.teardown_s) >= left_usd

    def can_launch(self, nodes: Iterable[Node], offer_id: OfferId, role: Role, machines: int = 1) -> bool:
        """Does the money last for so many machines of a role more, even if nobody ever speaks to any of them again?"""
        left_usd = self.left_usd
        if left_usd is None:
            return True
        new_s = self.timing.spend_lease_s * self.seen.run.clock_scale + self.seen.startup_s(offer_id) + self._exit_s()
        usd_per_hour = self.seen.prices.ceiling(offer_id, disk_gib(role, self.seen.run.workload))
        new_usd = machines * usd_per_hour * new_s / SECONDS_PER_HOUR
        egress_usd = self._egress_hourly() * self.timing.spend_lease_s * self.seen.run.clock_scale / SECONDS_PER_HOUR
        return new_usd + egress_usd + sum(self._alone_usd(node) for node in nodes) <= left_usd

    def lease_end_wall_s(self, nodes: Iterable[Node]) -> float:
        """Return until when the fleet may run: the spend lease, or the end of the money if that is sooner."""
        full_s = self.seen.wall_s + self.timing.spend_lease_s
        left_usd = self.left_usd
        if left_usd is None:
            return full_s
        fixed_usd, usd_per_hour = 0.0, self._egress_hourly()
        for node in nodes:
            usd_per_hour += self._hourly(node)
            fixed_usd += self._hourly(node) * self._fixed_s(node) / SECONDS_PER_HOUR
        if not usd_per_hour:
            return full_s
        run_s = max(0.0, left_usd - fixed_usd) / usd_per_hour * SECONDS_PER_HOUR
        return min(full_s, self.seen.wall_s + run_s / self.seen.run.clock_scale)

    def _usd(self, nodes: Iterable[Node], wall_s: float) -> float:
        hours = wall_s * self.seen.run.clock_scale / SECONDS_PER_HOUR
        return (sum(self._hourly(node) for node in nodes) + self._egress_hourly()) * hours

    def _alone_usd(self, node: Node) -> float:
        return self._hourly(node) * self._alone_s(node) / SECONDS_PER_HOUR

    def _alone_s(self, node: Node) -> float:
        """Return the run seconds that a machine bills after our last word."""
        if node.status is NodeStatus.STOPPING:
            return self.timing.teardown_s * self.seen.run.clock_scale
        return self.timing.spend_lease_s * self.seen.run.clock_scale + self._fixed_s(node)

    def _fixed_s(self, node: Node) -> float:
        """Return the run seconds that no spend lease can cut: the rest of the start-up, and the exit."""
        start_s = 0.0
        if node.ready_at_s is None:
            start_s = max(0.0, node.requested_at_s + self.seen.startup_s(node.offer_id) - self.seen.now_s)
        return start_s + self._exit_s()

    def _exit_s(self) -> float:
        timing = self.timing
        return (timing.poll_s + timing.self_end_s + timing.teardown_s) * self.seen.run.clock_scale

    def _egress_hourly(self) -> float:
        """Return what the weights cost on their way at most: the gang may train faster than it was asked to."""
        if self.seen.accepted is None:
            return 0.0
        allocation = self.seen.accepted[0].allocation
        return allocation.egress_usd_per_hour * allocation.trainer.column.samples_per_s / allocation.samples_per_s

    def _hourly(self, node: Node) -> float:
        return self.seen.prices.ceiling(node.offer_id, node.disk_gib)


def least_usd(plan: ExecutionPlan, market: Market, run: RunRecord, timing: Timing) -> float:
    """Return the least spend that makes sense: start-up, one checkpoint interval or spend lease, and teardown."""
    prices = Prices(market, {slot.offer_id: slot.usd_per_hour for slot in plan.placement.slots})
    # A run that cannot pay for the way to a checkpoint leaves nothing behind.
    work_s = max(CHECKPOINT_EVERY * plan.forecast.step_s, timing.spend_lease_s * run.clock_scale)
    end_s = (2 * timing.poll_s + timing.checkpoint_s + timing.self_end_s + timing.teardown_s) * run.clock_scale
    return sum(
        prices.ceiling(slot.offer_id, disk_gib(slot.role, run.workload))
        * (startup_s(market.offer(slot.offer_id), market.calibration) + work_s + end_s)
        / SECONDS_PER_HOUR
        for slot in plan.placement.slots
    )


def require_budget(plan: ExecutionPlan, market: Market, run: RunRecord, timing: Timing, spent_usd: float = 0.0) -> None:
    """Raise BudgetError when the run's budget cannot pay the least sensible run; call it before anything is rented.

    `spent_usd` is what a resumed run has spent already: budget and `least_usd` of the error are of the whole run.
    """
    cap, least = run.policy.budget_usd, least_usd(plan, market, run, timing)
    if cap is None or cap - spent_usd >= least:
        return
    spent = f", of which {spent_usd:.2f} are spent," if spent_usd else ""
    in_all = f", {spent_usd + least:.2f} in all" if spent_usd else ""
    raise BudgetError(
        f"budget {cap:.2f} USD{spent} buys nothing useful: start-up, a checkpoint and teardown of "
        f"{len(plan.placement.slots)} machines take up to {least:.2f} USD{in_all}; raise the budget or "
        "lower the target",
        least_usd=spent_usd + least,
    )
