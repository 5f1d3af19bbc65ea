"""purse: what the whole run costs, and how much of it the budget pays for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexcloud.cli.planned import Planned

_S_PER_H = 3600.0


@dataclass(frozen=True)
class WholeRun:
    """All samples of a run at its plan's throughput and price."""

    samples: float
    hours: float
    usd: float
    budget_usd: float | None

    @property
    def text(self) -> str:
        """Return it for a reader."""
        of = "" if self.budget_usd is None else f" of {self.budget_usd:.2f}"
        ends = f"; the budget ends it after {self.affordable:.0%} of them" if self.affordable < 1.0 else ""
        return f"{self.usd:.2f} USD{of} for {self.samples:.0f} samples in {self.hours:.1f} h{ends}"

    @property
    def affordable(self) -> float:
        """Share of the run that the budget pays for; 1: all of it."""
        return 1.0 if self.budget_usd is None or self.usd <= self.budget_usd else self.budget_usd / self.usd


def whole_run(planned: "Planned") -> WholeRun | None:
    """Return what the whole run costs, where a budget or the policy asks about it."""
    policy, allocation = planned.given.policy, planned.result.plan.allocation
    samples = policy.run_samples or (planned.given.run_samples if policy.budget_usd else None)
    if samples is None:
        return None
    hours = samples / allocation.samples_per_s / _S_PER_H
    return WholeRun(samples, hours, allocation.usd_per_hour * hours, policy.budget_usd)


def whole_run_fields(planned: "Planned") -> dict[str, object]:
    """Return the same for a machine; nothing where nobody asks."""
    run = whole_run(planned)
    if run is None:
        return {}
    figures = {"samples": run.samples, "hours": run.hours, "usd": run.usd, "budget_usd": run.budget_usd}
    return {"whole_run": figures}
