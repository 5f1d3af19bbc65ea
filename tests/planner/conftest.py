"""Small synthetic markets: one cloud with two regions, a GPU that trains well and one that only rolls out well."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import EgressPrice, LinkScope, LinkSpec, Market, Network
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload

AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]


@pytest.fixture(scope="session")
def model() -> ModelSpec:
    """Qwen2.5-7B's published shape."""
    return ModelSpec(
        name="Qwen2.5-7B",
        params=7_615_616_512,
        layers=28,
        hidden=3584,
        heads=28,
        kv_heads=4,
        head_dim=128,
        intermediate=18944,
        vocab=152064,
        source="config.json",
    )


@pytest.fixture(scope="session")
def workload(model: ModelSpec) -> Workload:
    """The default job on that model."""
    return Workload(model=model)


@pytest.fixture(scope="session")
def policy() -> Policy:
    """20k tok/s at least cost, without a survival rule: a test that wants one asks for it."""
    return Policy(target_samples_per_s=20_000 / 2048, survival_share=0.0)


@pytest.fixture(scope="session")
def fleet() -> FleetState:
    """Nothing runs yet."""
    return FleetState()


@pytest.fixture(scope="session")
def make_offer() -> MakeOffer:
    """Return a maker of offers; every field may be overridden."""

    def make(instance_type: str = "big8", usd_per_hour: float = 20.0, **fields: object) -> Offer:
        values: dict[str, object] = {
            "cloud": "acme",
            "region": "us-one",
            "zone": "a",
            "tenure": Tenure.ON_DEMAND,
            "gpu": "BIG" if instance_type.startswith("big") else "LEAN",
            "gpu_count": int(instance_type.lstrip("biglean") or 1),
            "vcpus": 64.0,
            "memory_gib": 512.0,
            "network_gb_per_s": 50.0,
            "as_of": AS_OF,
            "source": "test",
        }
        values.update(fields)
        tenure = Tenure(str(values["tenure"]))
        zone = None if values["zone"] is None else str(values["zone"])
        values["id"] = offer_id(str(values["cloud"]), str(values["region"]), zone, instance_type, tenure)
        return Offer.model_validate({**values, "instance_type": instance_type, "usd_per_hour": usd_per_hour})

    return make


@pytest.fixture(scope="session")
def make_market() -> MakeMarket:
    """Return a maker of markets from offers; BIG trains and rolls out, LEAN has bandwidth and few FLOPS."""
    big = GpuSpec(name="BIG", hbm_gib=80, hbm_gb_per_s=3350, bf16_tflops=989, link_gb_per_s=450, source="test")
    lean = GpuSpec(name="LEAN", hbm_gib=96, hbm_gb_per_s=4000, bf16_tflops=148, link_gb_per_s=450, source="test")
    efficiencies = (
        Efficiency(gpu="*", bandwidth=0.75, compute=0.6, mfu=0.36, mfu_decay=0.03, source="test"),
        Efficiency(gpu="LEAN", bandwidth=0.75, compute=0.8, mfu=0.27, mfu_decay=0.27, source="test"),
    )
    scopes = {LinkScope.ZONE: 50.0, LinkScope.REGION: 3.0, LinkScope.CONTINENT: 0.6, LinkScope.WORLD: 0.25}
    prices = {LinkScope.ZONE: 0.0, LinkScope.REGION: 0.01, LinkScope.CONTINENT: 0.02, LinkScope.WORLD: 0.09}
    network = Network(
        links=tuple(
            LinkSpec(scope=scope, gb_per_s=rate, latency_ms=1, source="test") for scope, rate in scopes.items()
        ),
        egress=tuple(
            EgressPrice(cloud="acme", scope=scope, usd_per_gb=usd, source="test") for scope, usd in prices.items()
        ),
    )

    def make(*offers: Offer, **fields: object) -> Market:
        values: dict[str, object] = {
            "as_of": AS_OF,
            "offers": tuple(sorted(offers, key=lambda offer: offer.id)),
            "gpus": {"BIG": big, "LEAN": lean},
            "network": network,
            "calibration": Calibration(efficiencies=efficiencies, source="test"),
        }
        return Market.model_validate({**values, **fields})

    return make


@pytest.fixture
def market(make_market: MakeMarket, make_offer: MakeOffer) -> Market:
    """Two regions, two GPU types, on demand and spot: ten offers."""
    spot = {"tenure": Tenure.SPOT}
    return make_market(
        make_offer("big8", 24.0),
        make_offer("big8", 25.0, zone="b"),
        make_offer("big8", 9.0, **spot),
        make_offer("big1", 3.2),
        make_offer("lean8", 12.0),
        make_offer("lean1", 1.6),
        make_offer("lean8", 5.0, region="us-two", **spot),
        make_offer("lean1", 0.7, region="us-two", **spot),
        make_offer("lean1", 0.8, region="us-two", zone="b", **spot),
        make_offer("big8", 22.0, region="us-two"),
    )


@pytest.fixture(scope="session")
def makers(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload
) -> tuple[MakeOffer, MakeMarket, Workload]:
    """What random markets are made with."""
    return make_offer, make_market, workload
