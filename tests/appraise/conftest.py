from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from hexcloud.appraise.row import Row
from hexcloud.domain.gpu import GpuSpec

SOUND: dict[str, Any] = {
    "cloud": "aws",
    "region": "us-east-1",
    "zone": "a",
    "instance_type": "big",
    "tenure": "on_demand",
    "gpu": "H100",
    "gpu_count": 8,
    "vcpus": 96,
    "memory_gib": 768,
    "network_gb_per_s": 50,
    "price": 40.0,
    "as_of": "2026-07-20",
    "source": "list",
}


@pytest.fixture
def row() -> Callable[..., Row]:
    """Make a sound row, but for what is named."""
    return lambda **odd: Row(**{**SOUND, **odd})


@pytest.fixture
def gpus() -> dict[str, GpuSpec]:
    spec = GpuSpec(name="H100", hbm_gib=80, hbm_gb_per_s=3350, bf16_tflops=989, link_gb_per_s=450, source="sheet")
    return {"H100": spec, "L4": spec.model_copy(update={"name": "L4"})}


def _any_row() -> st.SearchStrategy[Row]:
    """Rows as bad as real ones: wrong numbers, clashing places, twins."""
    price = st.one_of(st.floats(0.01, 1000), st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 0.001, 4.0, 40.0]))
    return st.builds(
        Row,
        cloud=st.sampled_from(["aws", "gcp", "neo"]),
        region=st.sampled_from(["r1", "r2"]),
        zone=st.sampled_from([None, "a", "b"]),
        instance_type=st.sampled_from(["big", "small"]),
        tenure=st.sampled_from(["on_demand", "spot", "spot", "on_demand", "loan"]),
        gpu=st.sampled_from(["H100", "L4", "H100", "Q9"]),
        gpu_count=st.sampled_from([1, 8, 8, 12, 0, float("nan"), 2.5]),
        vcpus=st.just(8),
        memory_gib=st.just(64),
        network_gb_per_s=st.sampled_from([1.25, 1.25, 0.0]),
        price=price,
        currency=st.sampled_from(["USD", "USD", "USD", "CNY"]),
        per=st.sampled_from(["instance", "gpu"]),
        as_of=st.sampled_from(["2026-07-20", "2024-05-01", "soon"]),
        source=st.sampled_from(["list", "tracker"]),
    )


@pytest.fixture(scope="session")
def any_row() -> st.SearchStrategy[Row]:
    return _any_row()
