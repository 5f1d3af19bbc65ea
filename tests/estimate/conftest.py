"""Published models and the two GPUs of AReaL-Hex, so that its published ratios can be checked."""

import pytest

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload


def _model(name: str, params: int, layers: int, hidden: int, heads: int, kv_heads: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        params=params,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        intermediate=4 * hidden,
        vocab=151936,
        source="config.json",
    )


@pytest.fixture(scope="session")
def models() -> dict[str, ModelSpec]:
    """Qwen2.5 shapes, which the R1 distillations share."""
    return {
        "1.5B": _model("1.5B", 1_777_088_000, 28, 1536, 12, 2),
        "7B": _model("7B", 7_615_616_512, 28, 3584, 28, 4),
        "14B": _model("14B", 14_770_033_664, 48, 5120, 40, 8),
    }


@pytest.fixture(scope="session")
def workload(models: dict[str, ModelSpec]) -> Workload:
    """The default job on 7B."""
    return Workload(model=models["7B"])


@pytest.fixture(scope="session")
def h800() -> GpuSpec:
    """SXM figures: AReaL-Hex prints those of the PCIe card, which contradict its own measurements."""
    return GpuSpec(name="H800", hbm_gib=80, hbm_gb_per_s=3350, bf16_tflops=989, link_gb_per_s=200, source="data sheet")


@pytest.fixture(scope="session")
def h20() -> GpuSpec:
    """More bandwidth, a seventh of the FLOPS."""
    return GpuSpec(name="H20", hbm_gib=96, hbm_gb_per_s=4000, bf16_tflops=148, link_gb_per_s=450, source="data sheet")


@pytest.fixture(scope="session")
def fast() -> Efficiency:
    """The catalog's row of the H800."""
    return Efficiency(gpu="H800", bandwidth=0.75, compute=0.60, mfu=0.36, mfu_decay=0.03, source="catalog")


@pytest.fixture(scope="session")
def lean() -> Efficiency:
    """The catalog's row of the H20."""
    return Efficiency(gpu="H20", bandwidth=0.75, compute=0.80, mfu=0.27, mfu_decay=0.27, source="catalog")
