"""Does the answer to one question refute the proof of another, on the whole market?

Each question is asked of `make_plan` as a user asks it. For each model and cap: `max_throughput` gives the most T with
a bound; `min_cost` at paces around it must then neither undercut the cap beyond the bound nor fail under T, and a cap
of what `min_cost` asks for must buy its throughput back. More money must not buy less. The nearest feasible ask must be
feasible at its price, and what is a little over it not. `budget_run`'s bound must hold against `min_cost`.

Bars: nothing is refuted. All are within twice the gap of a plan, 0.1 %.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.inputs.market import whole_market
from hexcloud.adapters.files import find_model
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.plan import make_plan

MODELS = ("Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-14B")
CAPS_USD_PER_HOUR = (25.0, 60.0, 100.0, 200.0, 400.0, 1000.0)
SLOWEST_SHARES = (0.0, 0.1, 0.3)
"""Of the most throughput for the largest cap: what a `budget_run` must make at least."""
PACES = (0.5, 0.6, 0.75, 0.9, 1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5)
WIDTH = 2 * MIP_GAP


@dataclass
class Asker:
    """Somebody who asks about one model, and notes what does not go together."""

    market: Market
    workload: Workload
    asked: int = 0

    def plan(self, **wishes: object) -> Allocation | None:
        self.asked += 1
        try:
            return make_plan(self.market, self.workload, Policy.model_validate(wishes), FleetState()).plan.allocation
        except InfeasibleError:
            return None

    def most(self, cap: float) -> Allocation | None:
        return self.plan(objective=Objective.MAX_THROUGHPUT, max_usd_per_hour=cap)

    def caps(self, caps: tuple[float, ...]) -> Iterator[str]:
        found = [(cap, self.most(cap)) for cap in caps]
        for cap, plan in found:
            if plan is None:
                yield from (
                    f"nothing for {cap:g}, but at {pace:g}/s" for pace in (0.1, 1.0) if self.is_under(pace, cap)
                )
                continue
            bound = plan.proof.upper_bound_samples_per_s or 0.0
            if self.is_under(bound * (1 + WIDTH), cap):
                yield f"{bound:.3f}/s is called the most for {cap:g}, but more can be had"
            if not self.is_under(plan.samples_per_s, cap * (1 + WIDTH)):
                yield f"{plan.samples_per_s:.3f}/s is planned for {cap:g}, but cannot be had for it"
            yield from self.back(plan.samples_per_s * 0.97)
        made = [0.0 if plan is None else plan.samples_per_s for _, plan in found]
        yield from (
            f"more money buys {more:.3f} < {less:.3f}/s" for less, more in pairwise(made) if more < less * (1 - WIDTH)
        )

    def is_under(self, pace: float, cap: float) -> bool:
        plan = self.plan(target_samples_per_s=pace)
        return plan is not None and plan.usd_per_hour <= cap

    def back(self, pace: float) -> Iterator[str]:
        plan = self.plan(target_samples_per_s=pace)
        if plan is None:
            yield f"{pace:.3f}/s cannot be had, but more can"
            return
        most = self.most(plan.usd_per_hour)
        if most is None or most.samples_per_s < pace * (1 - WIDTH):
            yield f"{pace:.3f}/s costs {plan.usd_per_hour:.2f}, which is said to buy less"

    def nearest(self) -> Iterator[str]:
        self.asked += 1
        try:
            make_plan(self.market, self.workload, Policy(target_samples_per_s=1e6), FleetState())
        except InfeasibleError as error:
            nearest, price = error.nearest_samples_per_s, error.nearest_usd_per_hour or 0.0
        plan, beyond = (self.plan(target_samples_per_s=pace) for pace in (nearest, nearest * (1 + WIDTH)))
        if plan is None or abs(plan.usd_per_hour / price - 1) > WIDTH:
            yield f"the nearest ask {nearest:.3f}/s for {price:.2f} cannot be had for that"
        if beyond is not None:
            yield f"{nearest:.3f}/s is called the nearest ask, but more can be had"

    def thrift(self, slowest: float) -> Iterator[str]:
        wishes = {"target_samples_per_s": slowest} if slowest else {}
        plan = self.plan(objective=Objective.BUDGET_RUN, budget_usd=1e9, run_samples=1e5, **wishes)
        if plan is None:
            yield f"no plan at all from {slowest:.3f}/s on"
            return
        bound = 3600 * (plan.proof.lower_bound_usd_per_sample or 0.0)
        if plan.usd_per_hour / plan.samples_per_s > bound * (1 + WIDTH):
            yield f"from {slowest:.3f}/s on: proven only to {bound:.5f} USD/h per sample/s"
        for pace in (share * plan.samples_per_s for share in PACES):
            rival = self.plan(target_samples_per_s=pace) if pace >= slowest else None
            if rival is not None and rival.usd_per_hour / pace < bound * (1 - 1e-6):
                ratio = rival.usd_per_hour / pace
                yield f"from {slowest:.3f}/s on: {bound:.5f} is proven, but {ratio:.5f} at {pace:.3f}/s"


def main() -> int:
    is_smoke = "--smoke" in sys.argv
    market, source = whole_market(most=1500 if is_smoke else None)
    caps = CAPS_USD_PER_HOUR[1:3] if is_smoke else CAPS_USD_PER_HOUR
    print(f"{len(market.offers)} offers: {source}")
    asked, refuted = 0, list[str]()
    for name in MODELS[1:2] if is_smoke else MODELS:
        asker = Asker(market, Workload(model=find_model(name)))
        top = asker.most(caps[-1])
        slowest = [0.0 if top is None else top.samples_per_s * share for share in SLOWEST_SHARES]
        checks = [asker.caps(caps), asker.nearest(), *map(asker.thrift, slowest[:1] if is_smoke else slowest)]
        found = [f"{name}: {what}" for check in checks for what in check]
        print("\n".join([f"{name}: {asker.asked} questions, {len(found)} proofs refuted", *found]), flush=True)
        asked, refuted = asked + asker.asked, refuted + found
    bars = {"proofs_refuted": {"value": len(refuted), "bar": 0, "ok": not refuted}}
    print(json.dumps({"benchmark": "cross_check", "metrics": {"questions": asked}, "bars": bars}))
    return 0 if not refuted else 1


if __name__ == "__main__":
    sys.exit(main())
