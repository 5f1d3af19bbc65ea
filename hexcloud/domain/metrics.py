"""StepRow: one line of a run's `metrics.jsonl`, written by the coordinator, read by the report and the live view."""

from hexcloud.domain.frozen import Frozen

METRICS_FILE = "metrics.jsonl"
"""Name of the file in the run's folder."""


class StepRow(Frozen):
    """One published version. Times are wall seconds."""

    epoch: int
    version: int
    wall_s: float
    """When the version was published, seconds since the epoch."""
    samples: int
    dropped_samples: int
    """Since the run began."""
    filtered_samples: int = 0
    """Since the run began: of groups whose rewards were all equal, replaced."""
    reward: float
    loss: float
    grad_norm: float
    clip_fraction: float
    prox_kl: float
    busy_s: float
    wait_s: float
    staleness: dict[int, int]
    """Age of each trained sample's oldest token at this step -> samples."""
    tokens: int
