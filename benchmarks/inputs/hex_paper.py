"""AReaL-Hex (arXiv 2511.00796): its figures, and its market and models as our planner takes them.

The speeds come from its table 1 and from nothing else: USD per hour over table 1's USD per token is tokens per hour of
a GPU in a phase, of which only ratios count. Table 1 follows from figure 2, whose seconds a step set the clock, so that
seconds of weight sync mean something.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from hexcloud.adapters.files import load_gpus, load_models
from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.formation import Formation
from hexcloud.domain.market import LinkScope, LinkSpec, Market, Network
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import largest_batch, training_bytes, usable_training_bytes

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
        prox_share=0.0,
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
            needed = training_bytes(one.job, Formation.flat(nodes * size), one.job.longest_tokens)
            if needed <= usable_training_bytes(gpu):
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
