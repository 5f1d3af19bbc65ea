"""clashed: why there is no plan, in the user's own words: which rules clash, what could be changed, what is nearest."""

import re
from typing import TYPE_CHECKING

from hexcloud.cli.refusals import RefusedError
from hexcloud.domain.errors import InfeasibleError, PlanError

if TYPE_CHECKING:
    from hexcloud.domain.workload import Workload
    from hexcloud.planner.clash import Clash
    from hexcloud.wiring import PlanInput

_CRAWL = 1.0 / 3600.0
"""Samples/s that stand for any throughput at all."""
_RUN_BUDGET = "run_budget"
"""The rule that a `budget_run` with too little money breaks."""


def of_own_fleet(error: InfeasibleError) -> RefusedError:
    """Return why the user's own machines have no plan: no rule of a policy, and no target, is the reason."""
    nearest = {"nearest_target": None, "nearest_tokens_per_s": 0.0, "nearest_usd_per_hour": None}
    return RefusedError(str(error), "InfeasibleError", {"rules": list(error.rules), "clash": [], **nearest})


def in_users_words(error: InfeasibleError, given: "PlanInput", asked: str | None) -> RefusedError:
    """Return why there is no plan, and the nearest feasible target in the unit in which the user asked."""
    if _RUN_BUDGET in error.rules:
        return _too_little_money(error, given)
    workload = given.workload
    clashes = _clashes(error, given)
    target = given.policy.target_samples_per_s
    head = str(error)
    if clashes:
        head = f"no plan makes {spell_target(target, workload, asked)}" if target else "no plan is feasible"
    nearest = spell_target(error.nearest_samples_per_s, workload, asked)
    fields: dict[str, object] = {
        "rules": list(error.rules),
        "clash": [clash.model_dump(mode="json") for clash in clashes],
    }
    if error.nearest_samples_per_s > 0:
        price = "" if error.nearest_usd_per_hour is None else f" for {error.nearest_usd_per_hour:.2f} USD/h"
        last = f"the nearest feasible target is {nearest}{price}"
        fields |= {
            "nearest_target": nearest,
            "nearest_tokens_per_s": error.nearest_samples_per_s * workload.tokens_per_sample,
            "nearest_usd_per_hour": error.nearest_usd_per_hour,
        }
    else:
        last = f"no target is feasible under these rules{_least_price(given)}"
        fields |= {"nearest_target": None, "nearest_tokens_per_s": 0.0, "nearest_usd_per_hour": None}
    rows = ["rules that clash; without any one of them the others can be kept:", *map(_clash_row, clashes)]
    message = "\n".join([head, *(rows if clashes else []), last])
    return RefusedError(message, "InfeasibleError", fields)


def _too_little_money(error: InfeasibleError, given: "PlanInput") -> RefusedError:
    """Say what the run costs at the pace at which it costs least."""
    samples, budget = given.policy.run_samples or 0.0, given.policy.budget_usd or 0.0
    hours = samples / error.nearest_samples_per_s / 3600.0
    least_usd = (error.nearest_usd_per_hour or 0.0) * hours
    pace = f"{hours:.1f} h at {error.nearest_usd_per_hour or 0.0:.2f} USD/h"
    message = f"the run costs at least {least_usd:.2f} USD ({pace}) and the budget is {budget:.2f}; raise --budget"
    return RefusedError(message, "InfeasibleError", {"rules": list(error.rules), "least_usd": least_usd})


def _clashes(error: InfeasibleError, given: "PlanInput") -> "tuple[Clash, ...]":
    from hexcloud.domain.fleet import FleetState
    from hexcloud.planner.clash import told_clashes

    return told_clashes(error.rules, given.market, given.workload, given.policy, FleetState())


def _clash_row(clash: "Clash") -> str:
    away = f" ({clash.turned_away} offers turned away)" if clash.turned_away else ""
    return f"  {clash.rule}: {clash.demands}{away}" + (f"; {clash.mend}" if clash.mend else "")


def _least_price(given: "PlanInput") -> str:
    """Say what the cheapest plan of any throughput costs, where a cap is under that."""
    from hexcloud.domain.fleet import FleetState
    from hexcloud.domain.policy import Objective
    from hexcloud.planner.plan import make_plan

    if given.policy.max_usd_per_hour is None:
        return ""
    changes = {"objective": Objective.MIN_COST, "target_samples_per_s": _CRAWL, "max_usd_per_hour": None}
    try:
        plan = make_plan(given.market, given.workload, given.policy.model_copy(update=changes), FleetState()).plan
    except PlanError:
        return ""
    return f"; the least that any plan costs is {plan.allocation.usd_per_hour:.2f} USD/h"


def spell_target(samples_per_s: float, workload: "Workload", like: str | None) -> str:
    """Return a throughput in the unit of the user's own words; tok/s when there were none."""
    unit = (like or "").lower()
    if "step" in unit:
        return f"{samples_per_s / workload.samples_per_step * 60:.4g} steps/min"
    if re.search(r"samples?\s*/", unit):
        return f"{samples_per_s:.4g} samples/s"
    return f"{samples_per_s * workload.tokens_per_sample:.0f} tok/s"
