"""remaining: the policy of a `budget_run` as it stands now, with what is left of its money, samples and time."""

from hexcloud.controller.budget import Purse
from hexcloud.controller.observe import Seen
from hexcloud.domain.policy import Objective, Policy

SECONDS_PER_HOUR = 3600.0
LITTLE = 1e-6
"""Stands for nothing left: no plan is found, and the one in force goes on until the purse ends the run."""


def policy_now(seen: Seen, purse: Purse) -> Policy:
    """Return the run's policy; for `budget_run` with what remains of the budget after the reserve for the teardown."""
    policy = seen.run.policy
    if policy.objective is not Objective.BUDGET_RUN:
        return policy
    trained = seen.last_view.version if seen.last_view else 0
    steps = max(1, seen.run.spec.steps - trained)
    left_usd = (purse.left_usd or 0.0) - purse.reserve_usd(seen.standing())
    changes: dict[str, float] = {
        "run_samples": float(steps * seen.run.workload.samples_per_step),
        "budget_usd": max(LITTLE, left_usd),
    }
    if policy.deadline_h is not None:
        passed_h = (seen.now_s - seen.run.created_wall_s) / SECONDS_PER_HOUR
        changes["deadline_h"] = max(LITTLE, policy.deadline_h - passed_h)
    return policy.model_copy(update=changes)
