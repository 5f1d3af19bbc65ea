"""What do simpler buyers pay for the same throughput, and is the plan ever dearer than one of them? (bar: never)

Random asks (model, target or cap, spot share, survival, clouds) on the real market. Every buyer solves the same model
with variables removed, so a plan that is dearer by more than the proven gap would be a fault of the planner.
"""

import json
import math
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from benchmarks.inputs.market import whole_market
from hexcloud import wiring
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Objective
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.baselines import GREEDY, ON_DEMAND, SKYPILOT, baselines
from hexcloud.planner.plan import make_plan

MODELS = ("Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-14B")
TOKENS_PER_S = {"Qwen2.5-1.5B": (5e3, 200e3), "Qwen2.5-7B": (2e3, 60e3), "Qwen2.5-14B": (1e3, 30e3)}
CAPS_USD_PER_HOUR = (10.0, 100.0)
SKY_ASKS = 20
"""The first asks are also put to SkyPilot's optimizer, where it is installed: each starts a process."""
TOLERANCE = MIP_GAP
"""A plan is proven to a relative gap of MIP_GAP, so a buyer may be cheaper by that and no more."""
SINGLE_ON_DEMAND, SINGLE_ANY, ONE_CLOUD = "one GPU type, on-demand", "one GPU type, any tenure", "one cloud"


@dataclass(frozen=True)
class Answer:
    """One ask with its plan's price, and the best price of every kind of buyer, USD/h."""

    ask: str
    plan: float
    buyers: dict[str, float]
    everyone: dict[str, float]


def kind_of(row: BaselineRow) -> str:
    """Return the kind of buyer a row is about: of every GPU type and cloud only the best counts in the table."""
    if row.name in (GREEDY, ON_DEMAND, SKYPILOT):
        return row.name
    if row.name.endswith(", on-demand"):
        return SINGLE_ON_DEMAND
    return SINGLE_ANY if row.name.endswith(", any tenure") else ONE_CLOUD


def random_ask(rng: np.random.Generator) -> RunSpec:
    """Return a job with a target, or, one time in four, with a cap on its price instead."""
    model = str(rng.choice(MODELS))
    if rng.random() < 0.25:
        return RunSpec(model=model, max_usd_per_hour=between(rng, *CAPS_USD_PER_HOUR))
    return RunSpec(model=model, target=f"{between(rng, *TOKENS_PER_S[model]):.0f}")


def between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def answer(market: Market, rng: np.random.Generator, with_sky: bool) -> Answer | None:
    """Return what plan and buyers pay for one random ask, or None when nobody can do it."""
    spec = random_ask(rng)
    workload = wiring.workload_of(spec)
    clouds = sorted({offer.cloud for offer in market.offers})
    kept = tuple(sorted(str(cloud) for cloud in rng.permutation(clouds)[: rng.integers(3, len(clouds) + 1)]))
    wishes = {
        "clouds": kept,
        "max_spot_share": float(rng.choice([0.0, 0.5, 1.0])),
        "survival_share": float(rng.choice([0.0, 0.5, 0.7])),
    }
    policy = wiring.policy_of(spec, workload).model_copy(update=wishes)
    asked = spec.target or f"<= {spec.max_usd_per_hour:.0f} USD/h"
    limits = f"{len(kept)} clouds, spot {policy.max_spot_share}, sigma {policy.survival_share}"
    try:
        result = make_plan(market, workload, policy, FleetState())
    except InfeasibleError:
        return None
    plan = result.plan.allocation
    picks = wiring.sky_picks(market, result) if with_sky else frozenset()
    rows = baselines(market, workload, policy, plan, picks)
    able = {row.name: row.usd_per_hour for row in rows if row.usd_per_hour is not None}
    buyers: dict[str, float] = {}
    for row in rows:
        if row.usd_per_hour is not None:
            buyers[kind_of(row)] = min(row.usd_per_hour, buyers.get(kind_of(row), math.inf))
    objective = "fastest" if policy.objective is Objective.MAX_THROUGHPUT else "cheapest"
    return Answer(f"{objective}: {workload.model.name} {asked}, {limits}", plan.usd_per_hour, buyers, able)


def ask_many(market: Market, wanted: int) -> tuple[list[Answer], int]:
    """Return answers to `wanted` feasible asks, and how many asks nobody could do."""
    rng = np.random.default_rng(4)
    answers: list[Answer] = []
    impossible = 0
    while len(answers) < wanted and impossible < 5 * wanted:
        found = answer(market, rng, with_sky=len(answers) < SKY_ASKS)
        if found is None:
            impossible += 1
            continue
        answers.append(found)
        print(f"{len(answers)}/{wanted} {found.ask}: {found.plan:.2f} USD/h", file=sys.stderr)
    return answers, impossible


def show(answers: list[Answer]) -> dict[str, dict[str, float]]:
    """Print how many can do the job within DEAREST times the plan's price, and how much more they pay."""
    savings: dict[str, list[float]] = defaultdict(list)
    for found in answers:
        for kind, usd in found.buyers.items():
            savings[kind].append(1 - found.plan / usd)
    print(f"{'buyer':<34}{'can do it':>10}{'median saving':>15}{'least':>8}{'most':>8}")
    table = {}
    for kind, shares in sorted(savings.items(), key=lambda row: statistics.median(row[1])):
        asked = min(SKY_ASKS, len(answers)) if kind == SKYPILOT else len(answers)
        able, median = len(shares) / asked, statistics.median(shares)
        print(f"{kind:<34}{able:>10.0%}{median:>15.1%}{min(shares) + 0.0:>8.1%}{max(shares):>8.1%}")
        table[kind] = {"able": able, "median_saving": median, "least_saving": min(shares), "most_saving": max(shares)}
    return table


def main() -> int:
    market, origin = whole_market()
    answers, impossible = ask_many(market, 4 if "--smoke" in sys.argv else 100)
    print(
        f"{len(answers)} random asks on {len(market.offers)} offers of {len({o.cloud for o in market.offers})} clouds"
    )
    table = show(answers)
    worst = max(found.plan / usd for found in answers for usd in found.everyone.values())
    dearer = Counter(
        name for found in answers for name, usd in found.everyone.items() if found.plan > usd * (1 + TOLERANCE)
    )
    if SKYPILOT not in table:
        print("SkyPilot's optimizer: not asked, as SkyPilot is not installed, or it could never do the job")
    for name, times in dearer.items():
        print(f"the plan was dearer than {name} {times} times")
    metrics = {
        "asks": len(answers),
        "impossible": impossible,
        "offers": len(market.offers),
        "market": origin,
        "buyers": table,
    }
    bar = {"value": worst, "bar": 1 + TOLERANCE, "ok": worst <= 1 + TOLERANCE and bool(answers)}
    print(json.dumps({"benchmark": "vs_baselines", "metrics": metrics, "bars": {"dearest_plan_over_baseline": bar}}))
    return 0 if bar["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
