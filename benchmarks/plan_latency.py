"""How long does a plan over the whole market take, and what of it is needed?

Every ask (three models, two objectives, three levels each; survival of a lost domain and egress on, gap 0.1 % proven)
is planned once, cold: p50 and p95 are over these single runs of `make_plan`. Then, after 1 % of prices moved, it is
planned in pairs: from nothing and from the plan in force, in turns. Seconds are of CPU, as a busy machine changes the
clock more than the work; wall seconds are printed beside them.

Bars. p95 of a cold plan: 2 s (aim for the median: 0.25 s). Warm over cold: the sums over all asks and pairs, at most 1.
Pruning: on an even sample of the market, as the whole takes minutes an ask without it, `solve` with all columns of any
degree, batch and gang takes at least twice as long for either objective, and finds the same optimum within the gap.

Whole `make_plan` over HiGHS alone, at most 2, can be read in two ways, and both are printed: over the time of HiGHS
inside `make_plan`, to which the pruning leaves little, so that this is over 2; and over HiGHS on the models as they
stand, with every column, on the sample. The bar is on the second: there HiGHS is given what `make_plan` is given.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import highspy

from benchmarks.inputs.market import whole_market
from hexcloud.adapters.files import find_model
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen

MODELS = ("Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-14B")
TARGETS_TOK_PER_S = (5e3, 20e3, 80e3)
CAPS_USD_PER_HOUR = (25.0, 100.0, 400.0)
LEAST_OFFERS = 4000
P95_BAR_S = 2.0
AIM_S = 0.25
WARM_BAR = 1.0
PAIRS = 3
PRUNABLE = (" 5k", " 20k", " 25 ", " 100 ")
SAMPLE = 1500
PRUNING_BAR = 2.0
OVERHEAD_BAR = 2.0
MOVED_SHARE = 0.01
Seconds = float


@dataclass(frozen=True)
class Ask:
    """One question to the planner."""

    name: str
    workload: Workload
    policy: Policy


@dataclass(frozen=True)
class Row:
    """What came of one ask."""

    name: str
    objective: Objective
    plan: Allocation
    cold_s: Seconds
    wall_s: Seconds
    highs_s: Seconds
    again_s: Seconds
    warm_s: Seconds


class HighsClock:
    """CPU seconds inside HiGHS since the last reading."""

    def __init__(self) -> None:
        self._total_s = 0.0
        run = highspy.Highs.run

        def timed(solver: highspy.Highs) -> object:
            start = time.process_time()
            status = run(solver)
            self._total_s += time.process_time() - start
            return status

        highspy.Highs.run = timed  # type: ignore[method-assign, assignment]

    def read(self) -> Seconds:
        total, self._total_s = self._total_s, 0.0
        return total


def asks(models: tuple[str, ...]) -> list[Ask]:
    found = []
    for name in models:
        workload = Workload(model=find_model(name))
        for target in TARGETS_TOK_PER_S:
            policy = Policy(target_samples_per_s=target / workload.tokens_per_sample)
            found.append(Ask(f"{name} {target / 1e3:.0f}k tok/s", workload, policy))
        for cap in CAPS_USD_PER_HOUR:
            policy = Policy(objective=Objective.MAX_THROUGHPUT, max_usd_per_hour=cap)
            found.append(Ask(f"{name} most for {cap:.0f} USD/h", workload, policy))
    return found


def prunable() -> list[Ask]:
    """Return the asks that are solved with every column too: those that the sample can make."""
    return [ask for ask in asks(MODELS[1:2]) if any(level in ask.name for level in PRUNABLE)]


def moved(market: Market) -> Market:
    """Return the market after 1 % of its prices moved by up to a third."""
    dice = random.Random(1)
    chosen = set(dice.sample(range(len(market.offers)), max(1, round(MOVED_SHARE * len(market.offers)))))
    offers = tuple(
        offer.model_copy(update={"usd_per_hour": offer.usd_per_hour * dice.uniform(0.67, 1.33)})
        if index in chosen
        else offer
        for index, offer in enumerate(market.offers)
    )
    return market.model_copy(update={"offers": offers})


def timed(work: Callable[[], Allocation]) -> tuple[Allocation, Seconds, Seconds]:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    return answer, time.process_time() - cpu, time.perf_counter() - wall


def plan(ask: Ask, market: Market, start: Allocation | None = None) -> Allocation:
    return make_plan(market, ask.workload, ask.policy, FleetState(), start).plan.allocation


def measure(ask: Ask, market: Market, later: Market, clock: HighsClock, pairs: int) -> Row:
    clock.read()
    first, cold_s, wall_s = timed(lambda: plan(ask, market))
    highs_s = clock.read()
    again_s = warm_s = 0.0
    for _ in range(pairs):
        again_s += timed(lambda: plan(ask, later))[1]
        warm_s += timed(lambda: plan(ask, later, first))[1]
    return Row(ask.name, ask.policy.objective, first, cold_s, wall_s, highs_s, again_s, warm_s)


@dataclass(frozen=True)
class Pruning:
    """One ask with and without pruning."""

    name: str
    pruned_s: Seconds
    unpruned_s: Seconds
    unpruned_highs_s: Seconds
    whole_s: Seconds
    apart: float
    """Relative difference of what the two have best: prices, or throughputs."""
    objective: Objective


def prune(ask: Ask, market: Market, clock: HighsClock) -> Pruning:
    objective = ask.policy.objective
    _, whole_s, _ = timed(lambda: plan(ask, market))
    columns, _ = build_columns(
        screen(market, ask.workload, ask.policy, FleetState()).offers, market, ask.workload, ask.policy
    )
    problem = Problem(columns, market, ask.workload, ask.policy, FleetState())
    pruned, pruned_s, _ = timed(lambda: solve(problem))
    clock.read()
    kept, unpruned_s, _ = timed(lambda: solve(replace(problem, keeps_all=True)))
    best = [one.usd_per_hour if objective is Objective.MIN_COST else one.samples_per_s for one in (pruned, kept)]
    return Pruning(ask.name, pruned_s, unpruned_s, clock.read(), whole_s, abs(best[1] / best[0] - 1.0), objective)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def show(rows: list[Row], prunings: list[Pruning]) -> None:
    print(
        f"{'ask':<34}{'USD/h':>9}{'samples/s':>11}{'nodes':>7}{'cold s':>8}{'wall s':>8}{'HiGHS s':>9}{'warm/cold':>11}"
    )
    for row in rows:
        print(
            f"{row.name:<34}{row.plan.usd_per_hour:>9.2f}{row.plan.samples_per_s:>11.2f}{row.plan.proof.nodes:>7}"
            f"{row.cold_s:>8.3f}{row.wall_s:>8.3f}{row.highs_s:>9.3f}{row.warm_s / row.again_s:>11.2f}"
        )
    print(f"\n{'pruning':<34}{'pruned s':>10}{'all columns s':>15}{'ratio':>8}{'best apart':>14}")
    for one in prunings:
        ratio = one.unpruned_s / one.pruned_s
        print(f"{one.name:<34}{one.pruned_s:>10.3f}{one.unpruned_s:>15.3f}{ratio:>8.1f}{one.apart:>14.5f}")


def bar(value: float, limit: float, *, at_least: bool = False) -> dict[str, float | bool]:
    return {"value": value, "bar": limit, "ok": value >= limit if at_least else value <= limit}


def over_highs_inside(rows: list[Row], objective: Objective) -> float:
    """Return seconds of `make_plan` over those that HiGHS takes inside it, for one objective."""
    own = [row for row in rows if row.objective is objective]
    return sum(row.cold_s for row in own) / sum(row.highs_s for row in own)


def judge(rows: list[Row], prunings: list[Pruning], offers: int, least_offers: int) -> dict[str, object]:
    cold = [row.cold_s for row in rows]
    warm = sum(row.warm_s for row in rows) / sum(row.again_s for row in rows)
    ratios = {
        objective: sum(one.unpruned_s for one in own) / sum(one.pruned_s for one in own)
        for objective in {one.objective for one in prunings}
        for own in [[one for one in prunings if one.objective is objective]]
    }
    alone = sum(one.unpruned_highs_s for one in prunings)
    inside = {objective.value: over_highs_inside(rows, objective) for objective in {row.objective for row in rows}}
    whole = sum(one.whole_s for one in prunings)
    return {
        "benchmark": "plan_latency",
        "metrics": {
            "p50_s": statistics.median(cold),
            "p95_s": percentile(cold, 0.95),
            "wall_p50_s": statistics.median(row.wall_s for row in rows),
            "wall_p95_s": percentile([row.wall_s for row in rows], 0.95),
            "aim_p50_s": AIM_S,
            "nodes": sum(row.plan.proof.nodes for row in rows),
            "highs_share_of_make_plan": sum(row.highs_s for row in rows) / sum(cold),
            "make_plan_over_highs_inside": sum(cold) / sum(row.highs_s for row in rows),
            **{f"make_plan_over_highs_inside_{name}": ratio for name, ratio in sorted(inside.items())},
            "make_plan_over_highs_unpruned": whole / alone,
        },
        "bars": {
            "offers": bar(offers, least_offers, at_least=True),
            "gap": bar(max(row.plan.proof.gap for row in rows), MIP_GAP * (1 + 1e-6)),
            "p95_s": bar(percentile(cold, 0.95), P95_BAR_S),
            "warm_over_cold": bar(warm, WARM_BAR),
            **{
                f"unpruned_over_pruned_{one.value}": bar(ratios[one], PRUNING_BAR, at_least=True)
                for one in sorted(ratios)
            },
            "best_apart": bar(max(one.apart for one in prunings), 2 * MIP_GAP),
            "make_plan_over_highs_alone": bar(whole / alone, OVERHEAD_BAR),
        },
    }


def main() -> int:
    is_smoke = "--smoke" in sys.argv
    market, source = whole_market(most=1500 if is_smoke else None)
    later, clock = moved(market), HighsClock()
    wanted = asks(MODELS[1:2] if is_smoke else MODELS)
    plan(wanted[0], market)  # imports and the solver's first construction
    rows = [measure(ask, market, later, clock, PAIRS) for ask in wanted]
    sample, _ = whole_market(most=SAMPLE)
    prunings = [prune(ask, sample, clock) for ask in prunable()]
    print(f"{len(market.offers)} offers: {source}\n")
    show(rows, prunings)
    result = judge(rows, prunings, len(market.offers), 1000 if is_smoke else LEAST_OFFERS)
    metrics = result["metrics"]
    print("\n" + "\n".join(f"{name:<46}{value:>10.3f}" for name, value in metrics.items()))  # type: ignore[attr-defined]
    print(json.dumps(result))
    return 0 if all(one["ok"] for one in result["bars"].values()) else 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
