"""GpuSpec: facts about one GPU type, from `catalogs/gpus.yaml`."""

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class GpuSpec(Frozen):
    """One GPU type. Vendor data-sheet figures; efficiency lives in the calibration, never here."""

    name: str
    hbm_gib: float = Field(gt=0)
    """Usable device memory, GiB."""
    hbm_gb_per_s: float = Field(gt=0)
    """Memory bandwidth, 1e9 bytes/s."""
    bf16_tflops: float = Field(gt=0)
    """Dense tensor throughput in bf16 (fp16 where the chip has no bf16), 1e12 FLOP/s."""
    link_gb_per_s: float = Field(gt=0)
    """GPU-to-GPU bandwidth inside a node, one way, per GPU, 1e9 bytes/s (NVLink, else PCIe)."""
    has_bf16: bool = True
    source: str
    """Where the figures come from."""
