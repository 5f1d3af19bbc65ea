"""StepRow: one line of a run's `metrics.jsonl`, written by the coordinator, read by the report and the live view."""

from hexcloud.domain.bounds import Count
from hexcloud.domain.frozen import Message

METRICS_FILE = "metrics.jsonl"
"""Name of the file in the run's folder."""


class StepNumbers(Message):
    """What a training step tells of policy and machine: means over its trained response tokens."""

    reward: float = 0.0
    """Mean of the samples consumed."""
    loss: float = 0.0
    grad_norm: float = 0.0
    """Before clipping."""
    learning_rate: float = 0.0
    clip_fraction: float = 0.0
    """Share of tokens whose gradient the trust region stopped. Healthy: under 0.08; over 0.13 learning slows."""
    prox_kl: float = 0.0
    """Behaviour's logprob minus that of the policy at the step's start, nats. Healthy: 0.01 to 0.06."""
    importance: float = 0.0
    """Importance weight; dropped tokens count as 0."""
    importance_dropped: float = 0.0
    """Share of tokens that were dropped because their weight was over the cap."""
    kl: float = 0.0
    """KL(policy, reference), nats; 0 without a reference."""
    entropy: float = 0.0
    """Of the policy's next token, nats."""
    token_age: float = 0.0
    """Versions between the weights that made a token and those at the step's start."""
    tokens: Count = 0
    """Prompt and response, of all samples consumed."""
    trained_tokens: Count = 0
    """Of those, the ones that went through the policy: groups whose samples all earned the same teach nothing."""
    skipped_minibatches: Count = 0
    """Those whose loss or gradient was not finite: they did not move the policy. Healthy: 0."""


class StepRow(StepNumbers):
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
    busy_s: float
    wait_s: float
    staleness: dict[int, int]
    """Age of each trained sample's oldest token at this step -> samples."""
    tokens_per_s: float = 0.0
    """Trained tokens per wall second of work."""
    mfu: float | None = None
    """Share of the GPUs' peak that the model's own arithmetic is; None where the peak is not known."""
    ranks: int = 1
    """Processes that trained together."""
