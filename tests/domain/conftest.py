"""A few nouns to test with."""

from datetime import UTC, datetime

import pytest

from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.workload import Workload


@pytest.fixture
def model() -> ModelSpec:
    return ModelSpec(
        name="tiny",
        params=1000,
        layers=2,
        hidden=8,
        heads=2,
        kv_heads=1,
        head_dim=4,
        intermediate=16,
        vocab=21,
        source="made up",
    )


@pytest.fixture
def workload(model: ModelSpec) -> Workload:
    return Workload(model=model, prompt_tokens=500, response_tokens=1500, samples_per_step=256, group_size=8)


@pytest.fixture
def spot_offer() -> Offer:
    return Offer(
        id=offer_id("aws", "us-east-1", "use1-az5", "p5.48xlarge", Tenure.SPOT),
        cloud="aws",
        region="us-east-1",
        zone="use1-az5",
        instance_type="p5.48xlarge",
        tenure=Tenure.SPOT,
        gpu="H100-SXM",
        gpu_count=8,
        vcpus=192,
        memory_gib=2048,
        network_gb_per_s=400,
        usd_per_hour=14.25,
        as_of=datetime(2026, 7, 1, tzinfo=UTC),
        source="made up",
    )
