"""World: a small market, a job and a policy that fit together, for simulations. The prices are made up."""

from datetime import UTC, datetime

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.fleet import RunId
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import EgressPrice, LinkScope, LinkSpec, Market, Network
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.workload import Workload
from hexcloud.simulator.clock import VirtualClock

SOURCE = "made up for simulations"
_AS_OF = datetime(2026, 1, 1, tzinfo=UTC)
_GPUS = {
    "H100": GpuSpec(name="H100", hbm_gib=80, hbm_gb_per_s=3350, bf16_tflops=989, link_gb_per_s=450, source=SOURCE),
    "A100": GpuSpec(name="A100", hbm_gib=80, hbm_gb_per_s=2039, bf16_tflops=312, link_gb_per_s=300, source=SOURCE),
    "L40S": GpuSpec(name="L40S", hbm_gib=48, hbm_gb_per_s=864, bf16_tflops=362, link_gb_per_s=32, source=SOURCE),
}
_GPU_COUNT = 8
_Row = tuple[str, str, str | None, str, Tenure, float]
_ROWS: tuple[_Row, ...] = (
    ("aws", "us-east-1", "a", "H100", Tenure.ON_DEMAND, 55.0),
    ("aws", "us-east-1", "a", "H100", Tenure.SPOT, 24.0),
    ("aws", "us-east-1", "a", "L40S", Tenure.ON_DEMAND, 30.0),
    ("aws", "us-east-1", "a", "L40S", Tenure.SPOT, 11.0),
    ("aws", "us-west-2", "b", "L40S", Tenure.ON_DEMAND, 30.0),
    ("aws", "us-west-2", "b", "L40S", Tenure.SPOT, 12.0),
    ("gcp", "us-central1", "c", "A100", Tenure.ON_DEMAND, 32.0),
    ("gcp", "us-central1", "c", "A100", Tenure.SPOT, 13.0),
    ("lambda", "us-west-1", None, "A100", Tenure.ON_DEMAND, 17.0),
)
_EGRESS = (
    ("aws", LinkScope.CONTINENT, 0.02),
    ("aws", LinkScope.WORLD, 0.09),
    ("gcp", LinkScope.CONTINENT, 0.02),
    ("gcp", LinkScope.WORLD, 0.12),
    ("lambda", LinkScope.WORLD, 0.002),
)


def small_market() -> Market:
    """Return nine offers of three clouds in four regions."""
    scopes = ((LinkScope.ZONE, 12.5, 0.1), (LinkScope.REGION, 5.0, 1.0), (LinkScope.CONTINENT, 0.6, 60.0))
    return Market(
        as_of=_AS_OF,
        offers=tuple(sorted((_offer(row) for row in _ROWS), key=lambda offer: offer.id)),
        gpus=_GPUS,
        network=Network(
            links=tuple(
                LinkSpec(scope=scope, gb_per_s=rate, latency_ms=latency, source=SOURCE)
                for scope, rate, latency in (*scopes, (LinkScope.WORLD, 0.3, 150.0))
            ),
            egress=tuple(
                EgressPrice(cloud=cloud, scope=scope, usd_per_gb=usd, source=SOURCE) for cloud, scope, usd in _EGRESS
            ),
        ),
        calibration=Calibration(
            efficiencies=(Efficiency(gpu="*", bandwidth=0.6, compute=0.5, mfu=0.35, mfu_decay=0.05, source=SOURCE),),
            startup_s=120,
            source=SOURCE,
        ),
    )


def small_workload() -> Workload:
    """Return asynchronous GRPO of a 1.5B model (figures of Qwen2.5-1.5B).

    One update a batch, which needs no pi_prox: gangs of some machines are then worth their money.
    """
    model = ModelSpec(
        name="Qwen2.5-1.5B",
        params=1_543_714_304,
        layers=28,
        hidden=1536,
        heads=12,
        kv_heads=2,
        head_dim=128,
        intermediate=8960,
        vocab=151_936,
        source="config.json of Qwen/Qwen2.5-1.5B on Hugging Face",
    )
    return Workload(model=model, samples_per_step=256, group_size=8, eta=4, minibatches=1, prox_share=0.0)


def small_run(clock: VirtualClock, policy: Policy, steps: int = 10_000, workload: Workload | None = None) -> RunRecord:
    """Return a run that begins now, of the small workload unless it is told another."""
    return RunRecord(
        id=RunId("sim"),
        spec=RunSpec(name="sim", steps=steps, provider="local", trace=None),
        workload=workload or small_workload(),
        policy=policy,
        state=RunState.RUNNING,
        created_wall_s=clock.wall_s(),
        clock_origin_run_s=clock.now_s(),
        clock_origin_wall_s=clock.wall_s(),
        clock_scale=clock.scale,
        run_dir="sim",
        output="sim/output",
    )


def _offer(row: _Row) -> Offer:
    cloud, region, zone, gpu, tenure, usd_per_hour = row
    instance_type = f"{_GPU_COUNT}x{gpu}"
    return Offer(
        id=offer_id(cloud, region, zone, instance_type, tenure),
        cloud=cloud,
        region=region,
        zone=zone,
        instance_type=instance_type,
        tenure=tenure,
        gpu=gpu,
        gpu_count=_GPU_COUNT,
        vcpus=96,
        memory_gib=1024,
        network_gb_per_s=12.5,
        usd_per_hour=usd_per_hour,
        as_of=_AS_OF,
        source=SOURCE,
    )
