"""AReaL-Hex (arXiv 2511.00796) replayed: what does our planner make of its two GPU types, its prices and its models?

The speeds come from its table 1 and from nothing else: USD per hour over table 1's USD per token is tokens per hour of
a GPU in a phase, of which only ratios count. Table 1 follows from figure 2, whose seconds a step set the clock, so that
seconds of weight sync mean something. The allocation, its proof and the routes are the real planner's.

Bars: (a) at the throughput of 24 H800, as a linear program would split them, the plan costs 86.64 USD/h in 8-GPU nodes
(the paper's) and 1/1.80 of 126.72 in single GPUs, 1/1.65 with the weights sent as a delta; (b) for 126.72 USD/h single
GPUs gain 1.80x before sync, and at least what is published after the paper's own sync; (c) a linear program gives 77 to
79 % of an H800 fleet to rollout; (d) a plan takes no longer than published.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from hexcloud.adapters.files import load_gpus, load_models
from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import LinkScope, LinkSpec, Market, Network
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.plan import Allocation, Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import largest_batch, largest_micro_batch
from hexcloud.estimate.transfer import delta_bytes, full_bytes
from hexcloud.planner.allocate import allocate
from hexcloud.planner.milp import Model
from hexcloud.planner.partition import partition
from hexcloud.planner.place import place

USD_PER_GPU_HOUR = {"H800": 5.28, "H20": 1.85}
NODE_GB_PER_S, CROSS_GB_PER_S = 5.0, 1.5
BUDGET_USD_PER_HOUR = 126.72
HOMOGENEOUS_GPUS = 24


@dataclass(frozen=True)
class Paper:
    """What AReaL-Hex publishes of one model."""

    rollout_cost: dict[str, float]
    """Table 1, by GPU. The printed unit cannot be right; ratios are all that is used."""
    training_cost: dict[str, float]
    step_s: float
    """Figure 2: 24 H800 roll out a step in that."""
    h800_sync_s: float
    """Table 2: weight update of the homogeneous cluster, and of the mixed one."""
    mixed_sync_s: float
    gain: float
    """Figure 3: at equal budget, over 24 H800."""
    usd_gain: float
    """Table 4: USD per token, 24 H800 over 8 H800 + 24 H20."""


MODELS = {
    "1.5B": Paper({"H800": 5.58e-3, "H20": 2.06e-3}, {"H800": 1.66e-3, "H20": 5.16e-3}, 106, 4.75, 10.06, 1.36, 1.42),
    "7B": Paper({"H800": 1.14e-2, "H20": 4.15e-3}, {"H800": 3.05e-3, "H20": 9.51e-3}, 217, 14.79, 58.34, 1.31, 1.47),
    "14B": Paper({"H800": 3.43e-2, "H20": 1.27e-2}, {"H800": 0.99e-2, "H20": 3.10e-2}, 649, 26.00, 112.93, 1.50, 1.56),
}
PLAN_S = {24: 14.9, 32: 23.1, 40: 46.7, 56: 120.0}
"""Table 5: seconds of its scheduler, by GPUs."""
NO_SYNC = 10**6
"""A step this many times as long: pauses for weights vanish, and nothing else changes."""
MAX_GANG_GPUS = 64
SLOTS_PER_GPU = 16
"""Running samples; table 1 has no batch, so it only has to pass admission and staleness."""
NOW = datetime(2025, 11, 2, tzinfo=UTC)
Bars = dict[str, dict[str, float | bool]]


@dataclass(frozen=True)
class Replay:
    """One model of the paper: rates in samples/s per GPU, by GPU type."""

    name: str
    paper: Paper
    job: Workload
    rollout: dict[str, float]
    training: dict[str, float]

    @property
    def homogeneous_samples_per_s(self) -> float:
        """24 H800, split as a linear program would: no whole split is faster."""
        return HOMOGENEOUS_GPUS / (1.0 / self.rollout["H800"] + 1.0 / self.training["H800"])

    @property
    def lp_limit(self) -> float:
        """How many times dearer a sample is on H800 than on the best mix in fractions of GPUs."""
        training_usd = USD_PER_GPU_HOUR["H800"] / self.training["H800"]
        usd = {gpu: USD_PER_GPU_HOUR[gpu] / rate for gpu, rate in self.rollout.items()}
        return (usd["H800"] + training_usd) / (min(usd.values()) + training_usd)

    def after_sync(self, samples_per_s: float, sync_s: float) -> float:
        """Throughput in the paper's way: every step waits for its weights."""
        return self.job.samples_per_step / (self.job.samples_per_step / samples_per_s + sync_s)

    def before_sync(self, samples_per_s: float, sync_s: float) -> float:
        """The throughput that is this much after sync."""
        return self.job.samples_per_step / (self.job.samples_per_step / samples_per_s - sync_s)


def replay(name: str) -> Replay:
    paper = MODELS[name]
    job = Workload(
        model=load_models()[f"DeepSeek-R1-Distill-Qwen-{name}"],
        prompt_tokens=512,
        response_tokens=9148,
        max_response_tokens=27648,
        samples_per_step=256,
        group_size=16,
        eta=8,
        recompute_prox=False,
        reward_cpu_s_per_sample=0.0,
        drop_share=0.0,
    )
    unit = job.samples_per_step / (HOMOGENEOUS_GPUS * paper.step_s) * paper.rollout_cost["H800"]
    speed = {gpu: unit * usd / USD_PER_GPU_HOUR["H800"] for gpu, usd in USD_PER_GPU_HOUR.items()}
    rollout = {gpu: speed[gpu] / cost for gpu, cost in paper.rollout_cost.items()}
    training = {gpu: speed[gpu] / cost for gpu, cost in paper.training_cost.items()}
    return Replay(name, paper, job, rollout, training)


def offer(gpu: str, gpus: int, usd_per_hour: float, stock: int | None = None) -> Offer:
    """A node of the paper. Types stand in two zones, so that the link between them is the slow one."""
    zone = gpu.split("+", 1)[0].lower()
    instance_type = f"{gpu}x{gpus}"
    return Offer(
        id=offer_id("paper", "cluster", zone, instance_type, Tenure.ON_DEMAND),
        cloud="paper",
        region="cluster",
        zone=zone,
        instance_type=instance_type,
        tenure=Tenure.ON_DEMAND,
        gpu=gpu,
        gpu_count=gpus,
        vcpus=16.0 * gpus,
        memory_gib=128.0 * gpus,
        network_gb_per_s=NODE_GB_PER_S,
        usd_per_hour=usd_per_hour,
        stock=stock,
        as_of=NOW,
        source="arXiv 2511.00796, section 4.4",
    )


def node_offers(sizes: tuple[int, ...], stocks: dict[str, int] | None = None) -> list[Offer]:
    return [
        offer(gpu, size, size * usd, None if stocks is None else stocks[gpu] // size)
        for gpu, usd in USD_PER_GPU_HOUR.items()
        for size in sizes
    ]


def market_of(offers: list[Offer]) -> Market:
    links = {LinkScope.ZONE: NODE_GB_PER_S, LinkScope.REGION: CROSS_GB_PER_S}
    return Market(
        as_of=NOW,
        offers=tuple(sorted(offers, key=lambda one: one.id)),
        gpus=load_gpus(),
        network=Network(
            links=tuple(
                LinkSpec(scope=scope, gb_per_s=speed, latency_ms=0, source="1.7") for scope, speed in links.items()
            ),
            egress=(),
        ),
        calibration=Calibration(
            efficiencies=(
                Efficiency(gpu="*", bandwidth=1, compute=1, mfu=1, source="unused: table 1 gives the rates"),
            ),
            startup_s=0,
            source="table 1",
        ),
    )


def columns_of(one: Replay, market: Market) -> Columns:
    """Table 1's rates for every node that the model fits, and every gang of one node type up to 64 GPUs."""
    rollouts, gangs = [], []
    for node in market.offers:
        if "+" in node.gpu:
            continue
        gpu, size = market.gpus[node.gpu], node.gpu_count
        if largest_batch(one.job, gpu, 1) >= SLOTS_PER_GPU:
            rollouts.append(_rollout_column(node, one.rollout[node.gpu]))
        for nodes in range(1, MAX_GANG_GPUS // size + 1):
            if largest_micro_batch(one.job, gpu, nodes * size, 1) == 1:
                gangs.append(_gang(one, node, nodes, nodes * size * one.training[node.gpu]))
    return Columns(rollout=tuple(rollouts), trainer=tuple(gangs))


def _rollout_column(node: Offer, samples_per_gpu_s: float) -> RolloutColumn:
    return RolloutColumn(
        offer_id=node.id,
        tp=1,
        replicas=node.gpu_count,
        batch=SLOTS_PER_GPU,
        samples_per_s=node.gpu_count * samples_per_gpu_s,
        generation_s=2.0 * SLOTS_PER_GPU / samples_per_gpu_s,  # Little's law, and as much again for the slow ones
    )


def _gang(one: Replay, node: Offer, nodes: int, samples_per_s: float, kind: str = "fsdp") -> TrainerColumn:
    return TrainerColumn(
        offer_id=node.id,
        nodes=nodes,
        layout=Layout(kind=kind, ranks=nodes * node.gpu_count),
        samples_per_s=samples_per_s,
        step_s=one.job.samples_per_step / samples_per_s,
    )


def mixed_gangs(one: Replay) -> Iterator[tuple[Offer, TrainerColumn]]:
    """Plan only: nothing we have can train across GPU types. Pipeline stages of both, perfectly balanced."""
    for fast in range(1, 13):
        for slow in range(1, 9):
            usd = fast * USD_PER_GPU_HOUR["H800"] + slow * USD_PER_GPU_HOUR["H20"]
            bundle = offer(f"H800+H20-{fast}-{slow}", fast + slow, usd)
            rate = fast * one.training["H800"] + slow * one.training["H20"]
            yield bundle, _gang(one, bundle, 1, rate, kind="pipeline, plan only")


def plan(one: Replay, market: Market, columns: Columns, policy: Policy, *, sync: bool) -> Allocation:
    """Allocate, place and partition, as `make_plan` does after its columns."""
    batch = one.job.samples_per_step * (1 if sync else NO_SYNC)
    job, fleet = one.job.model_copy(update={"samples_per_step": batch}), FleetState()
    allocation = allocate(columns, market, job, policy, fleet)
    partition(place(allocation, fleet, market), allocation, market, job, fleet)
    return allocation


def cheapest(samples_per_s: float) -> Policy:
    return Policy(target_samples_per_s=samples_per_s, survival_share=0.0, max_nodes_per_pool=1000)


def fastest(usd_per_hour: float | None) -> Policy:
    return Policy(
        objective=Objective.MAX_THROUGHPUT, max_usd_per_hour=usd_per_hour, survival_share=0.0, max_nodes_per_pool=1000
    )


def mix(allocation: Allocation) -> str:
    counts: dict[str, int] = {}
    for share in allocation.rollout:
        name = share.column.offer_id.split("/")[3]
        counts[name] = counts.get(name, 0) + share.count
    gang = allocation.trainer.column
    rollout = " + ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"train {gang.nodes} {gang.offer_id.split('/')[3]}, roll out {rollout}"


def equal_throughput(models: list[Replay], bars: Bars) -> None:
    """(a) The cheapest plan that is as fast as 24 H800."""
    print(f"(a) as fast as 24 H800 ({BUDGET_USD_PER_HOUR} USD/h); published: 86.64 USD/h, 1.46x, in 8-GPU nodes")
    dearest, least, least_delta = 0.0, math.inf, math.inf
    for one in models:
        target = one.homogeneous_samples_per_s
        for sizes in ((8,), (4,), (2,), (1,), (1, 2, 4, 8)):
            market = market_of(node_offers(sizes))
            found = plan(one, market, columns_of(one, market), cheapest(target), sync=False)
            gain = BUDGET_USD_PER_HOUR / found.rent_usd_per_hour
            size = "/".join(map(str, sizes))
            print(f"  {one.name:<5}nodes of {size:<8}{found.rent_usd_per_hour:8.2f} USD/h {gain:5.2f}x  {mix(found)}")
            dearest = max(dearest, found.rent_usd_per_hour) if sizes == (8,) else dearest
            least = min(least, gain) if sizes == (1,) else least
        least_delta = min(least_delta, _with_delta(one, target))
        _with_mixed_gangs(one, target)
        print(f"  {one.name:<5}linear program, fractions of GPUs{one.lp_limit:>14.2f}x  table 4: {one.paper.usd_gain}x")
    bars["a_usd_per_hour_in_8_gpu_nodes"] = _at_most(dearest, 86.64)
    bars["a_gain_in_8_gpu_nodes"] = _at_least(BUDGET_USD_PER_HOUR / dearest, 1.46)
    bars["a_gain_in_single_gpus"] = _at_least(least, 1.80)
    bars["a_gain_in_single_gpus_with_delta_sync"] = _at_least(least_delta, 1.65)


def _with_delta(one: Replay, target: float) -> float:
    """The same in single GPUs, where each step waits for a delta at the paper's own pace of bytes, and reloads."""
    share = delta_bytes(one.job.model) / full_bytes(one.job.model)
    wire_s = share * one.paper.mixed_sync_s
    market = market_of(node_offers((1,)))
    needed = one.before_sync(target, wire_s)
    found = plan(one, market, columns_of(one, market), cheapest(needed), sync=True)
    gain = BUDGET_USD_PER_HOUR / found.rent_usd_per_hour
    what = f"delta sync {wire_s:.1f} s"
    print(f"  {one.name:<5}{what:<17}{found.rent_usd_per_hour:8.2f} USD/h {gain:5.2f}x  {mix(found)} (H800: no sync)")
    return gain


def _with_mixed_gangs(one: Replay, target: float) -> None:
    bundles = list(mixed_gangs(one))
    market = market_of([*node_offers((1,)), *(bundle for bundle, _ in bundles)])
    own = columns_of(one, market)
    columns = own.model_copy(update={"trainer": (*own.trainer, *(gang for _, gang in bundles))})
    found = plan(one, market, columns, cheapest(target), sync=False)
    gain = BUDGET_USD_PER_HOUR / found.rent_usd_per_hour
    print(
        f"  {one.name:<5}{'mixed gangs':<17}{found.rent_usd_per_hour:8.2f} USD/h {gain:5.2f}x  {mix(found)} (plan only)"
    )


def equal_budget(models: list[Replay], bars: Bars) -> None:
    """(b) The fastest plan for the price of 24 H800."""
    print(f"\n(b) for {BUDGET_USD_PER_HOUR} USD/h in single GPUs, over 24 H800 split by a linear program")
    least = math.inf
    for one in models:
        market = market_of(node_offers((1,)))
        found = plan(one, market, columns_of(one, market), fastest(BUDGET_USD_PER_HOUR), sync=False)
        base, paper = one.homogeneous_samples_per_s, one.paper
        before = found.samples_per_s / base
        after = one.after_sync(found.samples_per_s, paper.mixed_sync_s) / one.after_sync(base, paper.h800_sync_s)
        least = min(least, before)
        print(
            f"  {one.name:<5}{before:.2f}x before sync, {after:.2f}x after the paper's ({paper.mixed_sync_s} s against "
            f"{paper.h800_sync_s} s), published {paper.gain:.2f}x; {found.rent_usd_per_hour:.2f} USD/h: {mix(found)}"
        )
        bars[f"b_gain_after_sync_{one.name}"] = _at_least(after, paper.gain)
    bars["b_gain_before_sync"] = _at_least(least, 1.80)


def homogeneous_split(models: list[Replay], bars: Bars) -> None:
    """(c) What a linear program gives to rollout."""
    print("\n(c) share of a homogeneous H800 fleet that a linear program gives to rollout; AReaL's rule is 75 %")
    shares = []
    for one in models:
        model = Model()
        done = model.add_variable(cost=-1.0)
        rolling, training = model.add_variable(), model.add_variable()
        model.add_row("rollout_rate", [(rolling, one.rollout["H800"]), (done, -1.0)], lower=0.0)
        model.add_row("train_rate", [(training, one.training["H800"]), (done, -1.0)], lower=0.0)
        model.add_row("stock", [(rolling, 1.0), (training, 1.0)], upper=float(HOMOGENEOUS_GPUS))
        solution = model.minimise(gap=0.0, node_limit=1, relaxed=True)
        shares.append(solution.values[rolling] / HOMOGENEOUS_GPUS)
        print(f"  {one.name:<5}{shares[-1]:.1%}")
    bars["c_least_rollout_share"] = _at_least(min(shares), 0.77)
    bars["c_largest_rollout_share"] = _at_most(max(shares), 0.79)


def plan_seconds(models: list[Replay], bars: Bars, sizes: tuple[int, ...]) -> None:
    """(d) How long a plan for a given cluster takes."""
    print("\n(d) seconds per plan of a whole cluster (8 H800, the others H20; mixes are not published)")
    for gpus in sizes:
        slowest = 0.0
        for one in models:
            market = market_of(node_offers((1,), {"H800": 8, "H20": gpus - 8}))
            columns = columns_of(one, market)
            begun = time.perf_counter()
            found = plan(one, market, columns, fastest(None), sync=True)
            slowest = max(slowest, time.perf_counter() - begun)
            gain = found.samples_per_s / one.homogeneous_samples_per_s
            print(f"  {gpus} GPUs {one.name:<5}{gain:5.2f}x of 24 H800: {mix(found)}")
        print(f"  {gpus} GPUs slowest plan {slowest:.2f} s, published {PLAN_S[gpus]} s")
        bars[f"d_plan_s_{gpus}_gpus"] = _at_most(slowest, PLAN_S[gpus])


def _at_most(value: float, bar: float) -> dict[str, float | bool]:
    return {"value": value, "bar": bar, "ok": value <= bar * (1 + 1e-9)}


def _at_least(value: float, bar: float) -> dict[str, float | bool]:
    return {"value": value, "bar": bar, "ok": value >= bar}


def main() -> int:
    is_smoke = "--smoke" in sys.argv
    models = [replay(name) for name in (["7B"] if is_smoke else MODELS)]
    for one in models:
        ratios = [one.training["H800"] / one.rollout["H800"]]
        ratios += [rates["H20"] / rates["H800"] for rates in (one.rollout, one.training)]
        print(
            "table 1, {:<5}H800 trains at {:.2f} of its rollout; H20 over H800: {:.3f}, {:.3f}".format(
                one.name, *ratios
            )
        )
    bars: Bars = {}
    equal_throughput(models, bars)
    equal_budget(models, bars)
    homogeneous_split(models, bars)
    plan_seconds(models, bars, (24,) if is_smoke else tuple(PLAN_S))
    metrics = {f"lp_limit_{one.name}": one.lp_limit for one in models}
    print(json.dumps({"benchmark": "areal_hex", "metrics": metrics, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
