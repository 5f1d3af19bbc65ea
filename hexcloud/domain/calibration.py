"""Calibration: every efficiency factor the estimator uses, as data with its source (`catalogs/calibration.yaml`)."""

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class Efficiency(Frozen):
    """Shares of a GPU's data-sheet figures that real kernels reach. `gpu` is `*` for the default."""

    gpu: str
    bandwidth: float = Field(gt=0, le=1)
    """e_m: share of HBM bandwidth while decoding."""
    compute: float = Field(gt=0, le=1)
    """e_c: share of dense FLOPS in prefill and decode matmuls."""
    mfu: float = Field(gt=0, le=1)
    """Share of dense FLOPS in training, within one node."""
    mfu_decay: float = Field(default=0.0, ge=0, lt=1)
    """Share of mfu lost per doubling of GPUs beyond eight."""
    source: str


class Calibration(Frozen):
    """Efficiencies, and priors that the run's own events refine later."""

    efficiencies: tuple[Efficiency, ...]
    startup_s: float = Field(default=300, ge=0)
    """From the provider's yes to the first heartbeat."""
    spot_interruptions_per_hour: float = Field(default=0.05, ge=0)
    restart_s: float = Field(default=300, ge=0)
    """Work lost and time to resume when the trainer's gang is lost."""
    source: str

    def of(self, gpu: str) -> Efficiency:
        """Return the efficiencies of a GPU, or the default row."""
        rows = {row.gpu: row for row in self.efficiencies}
        return rows.get(gpu) or rows["*"]
