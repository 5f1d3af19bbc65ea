"""What do simpler buyers get for the same wishes, and is the plan ever dearer than one of them? (bar: never)

Random asks on the real market, with the rows for survival, spot share and egress on: the cheapest plan for a target,
the fastest for a cap on its price, and the cheapest samples for a budget and a deadline. Every buyer solves the same
model with variables removed.

Never dearer means what it says: for all three objectives no buyer pays less per hour for the plan's throughput than the
plan that users get (`planner/outbid.py`: where a buyer does, his machines are the plan).

What a plan proves is tested too: no buyer is under its bound. For a target that is his price. For a cap each is asked
whether he makes more than the plan, and than its bound; for a budget, whether his samples are cheaper at six
throughputs. There a plan is within a gap of the bound (0.1 %, or more where the solver's nodes ended first: the largest
is printed, and a bar says how often), and a buyer may make that much more, or cheaper samples at another throughput;
how many do is printed.
"""

import json
import math
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from benchmarks.inputs.market import whole_market
from benchmarks.inputs.picture import Strips, draw_strips, png_asked
from hexcloud import wiring
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.baselines import GREEDY, ON_DEMAND, SKYPILOT
from hexcloud.planner.outbid import compared
from hexcloud.planner.plan import make_plan
from hexcloud.planner.problem import S_PER_H
from hexcloud.planner.search import cheapest
from hexcloud.planner.shop import Shop, open_shop

MODELS = ("Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-14B")
TOKENS_PER_S = {"Qwen2.5-1.5B": (5e3, 200e3), "Qwen2.5-7B": (2e3, 60e3), "Qwen2.5-14B": (1e3, 30e3)}
CAPS_USD_PER_HOUR = (10.0, 100.0)
BUDGETS_USD, STEPS = (300.0, 30_000.0), (50, 500)
OBJECTIVES = (Objective.MIN_COST, Objective.MAX_THROUGHPUT, Objective.BUDGET_RUN)
CHANCES = (0.6, 0.25, 0.15)
UNITS = {
    Objective.MIN_COST: "USD/h at the target",
    Objective.MAX_THROUGHPUT: "USD/h at the most it can make for the cap",
    Objective.BUDGET_RUN: "USD/h at the throughput of the cheapest samples",
}
SKY_ASKS = 20
"""The first asks for a target are also put to SkyPilot's optimizer, where it is installed: each starts a process."""
PACES = (0.5, 0.7, 1.0, 1.4, 2.0)
"""Of the plan's throughput: where buyers look for cheaper samples, beside the slowest that is in time."""
PROVEN = 0.97
"""Share of asks at least; of others the solver's nodes end first, and the bound is further off than the gap."""
MORE = 1e-6
"""Relative: makes more than the plan."""
HAIR = 1e-9
SINGLE_ON_DEMAND, SINGLE_ANY, ONE_CLOUD = "one GPU type, on-demand", "one GPU type, any tenure", "one cloud"


@dataclass(frozen=True)
class Answer:
    """One ask. Badness is what the objective wants little of: USD/h, hours a sample, USD a sample."""

    ask: str
    objective: Objective
    plan: float
    bound: float
    """No plan's badness is less: proven."""
    rivals: dict[str, float]
    """Badness of the best of every kind of buyer; for caps and budgets only of those who do better than the plan."""
    gains: dict[str, float]
    """Share of USD/h that the plan saves over the best of every kind, at the plan's throughput."""
    first: float
    """USD/h of the plan before the buyers were asked, over that after: 1 where none was cheaper."""


def kind_of(name: str) -> str:
    """Return the kind of buyer a name is about: of every GPU type and cloud only the best counts in the table."""
    if name in (GREEDY, ON_DEMAND, SKYPILOT):
        return name
    if name.endswith(", on-demand"):
        return SINGLE_ON_DEMAND
    return SINGLE_ANY if name.endswith(", any tenure") else ONE_CLOUD


def between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def random_ask(rng: np.random.Generator, clouds: list[str]) -> tuple[Workload, Policy]:
    """Return a job and wishes; survival and spot share always have their rows, egress has prices anyway."""
    spec = RunSpec(model=str(rng.choice(MODELS)), target=None)
    workload = wiring.workload_of(spec)
    objective = OBJECTIVES[int(rng.choice(len(OBJECTIVES), p=CHANCES))]
    samples_per_s = between(rng, *TOKENS_PER_S[spec.model]) / workload.tokens_per_sample
    run_samples = float(rng.integers(*STEPS)) * workload.samples_per_step
    kept = tuple(sorted(str(cloud) for cloud in rng.permutation(clouds)[: rng.integers(3, len(clouds) + 1)]))
    asked: dict[Objective, dict[str, float]] = {
        Objective.MIN_COST: {"target_samples_per_s": samples_per_s},
        Objective.MAX_THROUGHPUT: {"max_usd_per_hour": between(rng, *CAPS_USD_PER_HOUR)},
        Objective.BUDGET_RUN: {
            "budget_usd": between(rng, *BUDGETS_USD),
            "run_samples": run_samples,
            "deadline_h": run_samples / samples_per_s / S_PER_H,
        },
    }
    wishes = {
        "objective": objective,
        "clouds": kept,
        "max_spot_share": float(rng.choice([0.0, 0.5, 0.8])),
        "survival_share": float(rng.choice([0.5, 0.7])),
    }
    return workload, Policy.model_validate(wishes | asked[objective])


def in_words(workload: Workload, policy: Policy) -> str:
    asked = {
        Objective.MIN_COST: f"{(policy.target_samples_per_s or 0) * workload.tokens_per_sample:.0f} tok/s",
        Objective.MAX_THROUGHPUT: f"<= {policy.max_usd_per_hour or 0:.0f} USD/h",
        Objective.BUDGET_RUN: f"{policy.run_samples or 0:.0f} samples in {policy.deadline_h or 0:.0f} h for "
        f"{policy.budget_usd or 0:.0f} USD",
    }[policy.objective]
    limits = f"{len(policy.clouds)} clouds, spot {policy.max_spot_share}, sigma {policy.survival_share}"
    return f"{policy.objective.value}: {workload.model.name} {asked}, {limits}"


def answer(market: Market, ask: tuple[Workload, Policy], with_sky: bool) -> Answer | None:
    """Return what plan and buyers reach, or None when nobody can do it."""
    workload, policy = ask
    try:
        result = make_plan(market, workload, policy, FleetState())
    except InfeasibleError:
        return None
    picks = wiring.sky_picks(market, result) if with_sky and policy.objective is Objective.MIN_COST else frozenset()
    first_usd_per_hour = result.plan.allocation.usd_per_hour
    result, rows = compared(market, workload, policy, result, picks)
    plan = result.plan.allocation
    own, bound = _badness(plan)
    prices = _priced(rows)
    rivals = {Objective.MAX_THROUGHPUT: _faster, Objective.BUDGET_RUN: _thriftier}
    better = rivals[policy.objective](market, ask, plan) if policy.objective in rivals else prices
    gains = {kind: 1 - plan.usd_per_hour / usd for kind, usd in _best_of_kind(prices).items()}
    found = _best_of_kind(better)
    first = first_usd_per_hour / plan.usd_per_hour
    return Answer(in_words(workload, policy), policy.objective, own, bound, found, gains, first)


def _best_of_kind(found: dict[str, float]) -> dict[str, float]:
    best: dict[str, float] = {}
    for name, badness in found.items():
        best[kind_of(name)] = min(badness, best.get(kind_of(name), math.inf))
    return best


def _priced(rows: tuple[BaselineRow, ...]) -> dict[str, float]:
    return {row.name: row.usd_per_hour for row in rows if row.usd_per_hour is not None}


def _badness(plan: Allocation) -> tuple[float, float]:
    """Return a plan's badness, and the bound it proves."""
    proof = plan.proof
    if proof.upper_bound_samples_per_s is not None:
        return 1.0 / plan.samples_per_s, 1.0 / proof.upper_bound_samples_per_s
    if proof.lower_bound_usd_per_sample is not None:
        return plan.usd_per_hour / S_PER_H / plan.samples_per_s, proof.lower_bound_usd_per_sample
    assert proof.lower_bound_usd_per_hour is not None
    return plan.usd_per_hour, proof.lower_bound_usd_per_hour


def _shops(market: Market, ask: tuple[Workload, Policy], plan: Allocation) -> dict[str, Shop]:
    """Return buyers with fewer choices: on-demand, greedy, every cloud and every GPU type."""
    shop = open_shop(market, *ask, plan.samples_per_s)
    shops = {ON_DEMAND: shop.on_demand(), GREEDY: shop.greedy()}
    shops |= {f"only {cloud}": shop.of_cloud(cloud) for cloud in shop.values(lambda offer: offer.cloud)}
    return shops | {f"only {gpu}, any tenure": shop.of_gpu(gpu) for gpu in shop.values(lambda offer: offer.gpu)}


def _faster(market: Market, ask: tuple[Workload, Policy], plan: Allocation) -> dict[str, float]:
    """Return seconds a sample of the buyers who make more than the plan under its cap, or than it says any plan can."""
    cap, most = ask[1].max_usd_per_hour, plan.proof.upper_bound_samples_per_s
    assert cap is not None and most is not None
    better: dict[str, float] = {}
    for name, shop in _shops(market, ask, plan).items():
        problem = shop.capped(cap).problem
        for pace in (most * (1.0 + MORE), plan.samples_per_s * (1.0 + MORE)):
            if name not in better and cheapest(problem, pace, MIP_GAP) is not None:
                better[name] = 1.0 / pace
    return better


def _thriftier(market: Market, ask: tuple[Workload, Policy], plan: Allocation) -> dict[str, float]:
    """Return USD a sample of the buyers who get them for less than the plan, at its throughput or others in time."""
    own, _ = _badness(plan)
    slowest = ask[1].least_samples_per_s or 0.0
    paces = [plan.samples_per_s * share for share in PACES if plan.samples_per_s * share >= slowest]
    better: dict[str, float] = {}
    for name, shop in _shops(market, ask, plan).items():
        for pace in (slowest, *paces):
            found = cheapest(shop.capped(own * S_PER_H * pace * (1.0 - MORE)).problem, pace, MIP_GAP)
            if found is not None:
                usd = found.solution.objective / S_PER_H / pace
                better[name] = min(usd, better.get(name, math.inf))
    return better


def ask_many(market: Market, wanted: int) -> tuple[list[Answer], int]:
    """Return answers to `wanted` feasible asks, and how many asks nobody could do."""
    rng = np.random.default_rng(4)
    clouds = sorted({offer.cloud for offer in market.offers})
    answers: list[Answer] = []
    impossible = 0
    while len(answers) < wanted and impossible < 5 * wanted:
        found = answer(market, random_ask(rng, clouds), with_sky=len(answers) < SKY_ASKS)
        if found is None:
            impossible += 1
            continue
        answers.append(found)
        print(f"{len(answers)}/{wanted} {found.ask}: {found.plan:.3g}", file=sys.stderr)
    return answers, impossible


def show(answers: list[Answer], objective: Objective) -> dict[str, dict[str, float]]:
    """Print how many buyers of each kind can do what is asked, and by how much the plan does better."""
    asked = [found for found in answers if found.objective is objective]
    gains: dict[str, list[float]] = defaultdict(list)
    for found in asked:
        for kind, gain in found.gains.items():
            gains[kind].append(gain)
    print(f"\n{objective.value}, {len(asked)} asks: how much less the plan has of {UNITS[objective]}")
    print(f"{'buyer':<36}{'can do it':>10}{'median':>9}{'least':>9}{'most':>9}")
    table = {}
    for kind, shares in sorted(gains.items(), key=lambda row: statistics.median(row[1])):
        able, median = len(shares) / len(asked), statistics.median(shares)
        print(f"{kind:<36}{able:>10.0%}{median:>9.1%}{min(shares):>9.2%}{max(shares):>9.1%}")
        table[kind] = {"able": able, "median": median, "least": min(shares), "most": max(shares)}
    return table


def judged(answers: list[Answer]) -> tuple[dict[str, float], dict[str, dict[str, float | bool]]]:
    """Return how close buyers come to the plan and its bound, and the bars."""
    pairs = [(found, badness) for found in answers for badness in found.rivals.values()]
    over_bound = max((found.bound / badness for found, badness in pairs), default=math.inf)
    better = [found.plan / badness - 1.0 for found, badness in pairs if badness < found.plan * (1.0 - HAIR)]
    gaps = [1.0 - found.bound / found.plan for found in answers]
    proven = sum(gap <= MIP_GAP * (1.0 + 1e-6) for gap in gaps) / max(1, len(gaps))
    dearer = sum(min(found.gains.values(), default=0.0) < -HAIR for found in answers)
    metrics = {
        "buyers_compared": float(sum(len(found.gains) for found in answers)),
        "buyers_better_within_the_gap": float(len(better)),
        "most_a_buyer_was_seen_better": max(better, default=0.0),
        "plans_of_a_buyers_machines": float(sum(found.first > 1.0 + HAIR for found in answers)),
        "most_they_saved": max((found.first - 1.0 for found in answers), default=0.0),
        "largest_proven_gap": max(gaps, default=math.inf),
    }
    bars: dict[str, dict[str, float | bool]] = {
        "dearer_than_a_baseline": {"value": float(dearer), "bar": 0.0, "ok": dearer == 0},
        "proven_bound_over_best_buyer": {"value": over_bound, "bar": 1.0, "ok": over_bound <= 1.0 + HAIR},
        "proven_within_the_gap": {"value": proven, "bar": PROVEN, "ok": proven >= PROVEN},
    }
    return metrics, bars


def main() -> int:
    """`--smoke` asks 4 times, `--png FILE` draws the gains."""
    market, origin = whole_market()
    answers, impossible = ask_many(market, 4 if "--smoke" in sys.argv else 100)
    clouds = len({offer.cloud for offer in market.offers})
    print(
        f"{len(answers)} random asks on {len(market.offers)} offers of {clouds} clouds; nobody can do {impossible} more"
    )
    tables = {one.value: show(answers, one) for one in OBJECTIVES if any(found.objective is one for found in answers)}
    metrics, bars = judged(answers)
    gap = metrics["largest_proven_gap"]
    print(
        f"\n{bars['dearer_than_a_baseline']['value']:.0f} plans are dearer than a buyer at their throughput; "
        f"{metrics['plans_of_a_buyers_machines']:.0f} are made of a buyer's machines, which saved up to "
        f"{metrics['most_they_saved']:.4%}\n{metrics['buyers_better_within_the_gap']:.0f} buyers make more for the "
        f"cap, or cheaper samples at another throughput, seen by up to {metrics['most_a_buyer_was_seen_better']:.4%}; "
        f"the largest proven gap is {gap:.3%}, and nobody may do better than a plan's proven bound"
    )
    if (path := png_asked()) is not None:
        gains: dict[str, list[float]] = defaultdict(list)
        for found in answers:
            for kind, gain in found.gains.items():
                gains[kind].append(gain)
        draw_strips(Strips("What plans save over simpler buyers", "saved share", dict(gains), (0.0,)), path)
    facts = {"asks": len(answers), "impossible": impossible, "offers": len(market.offers), "market": origin}
    print(json.dumps({"benchmark": "vs_baselines", "metrics": facts | metrics | {"buyers": tables}, "bars": bars}))
    return 0 if answers and all(bar["ok"] for bar in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
