"""Workload: the RL job, as the planner sees it."""

from pydantic import Field, model_validator

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.training import LayoutKind


class Workload(Frozen):
    """One asynchronous GRPO job. All lengths are tokens of one sample."""

    model: ModelSpec
    prompt_tokens: float = Field(default=512, gt=0)
    response_tokens: float = Field(default=1536, gt=0)
    """Mean response length E[L]."""
    response_cv: float = Field(default=0.6, ge=0)
    """Coefficient of variation of the response length; E[L^2] = E[L]^2 * (1 + cv^2)."""
    max_response_tokens: int = Field(default=8192, gt=0)
    samples_per_step: int = Field(default=256, gt=0)
    """B: samples that one published training batch consumes."""
    group_size: int = Field(default=8, gt=0)
    """Samples of one prompt."""
    eta: int = Field(default=4, ge=0)
    """Staleness bound: the oldest token of a trained sample is at most eta versions old."""
    prox_share: float = Field(default=0.75, ge=0, le=1)
    """Share of samples with one more forward pass for pi_prox (+2P FLOPs per token)."""
    keeps_reference: bool = False
    """A frozen policy is kept beside the trained one, and asked about every sample (+2P FLOPs per token)."""
    activation_recompute: bool = True
    """Gradient checkpointing (+2P FLOPs per token)."""
    reward_cpu_s_per_sample: float = Field(default=0.05, ge=0)
    minibatches: int = Field(default=4, gt=0)
    """Updates that the trainer makes of one batch."""
    micro_batch_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of a forward pass of a trainer's rank; None: as many as there is room for."""
    trainer_ranks: int | None = Field(default=None, gt=0)
    """Ranks on each machine of the trainer; None: one for each GPU."""
    layouts: tuple[LayoutKind, ...] = tuple(LayoutKind)
    """Layouts in which this job can be trained, the preferred first."""
    published_bytes_per_param: int = Field(default=2, gt=0)
    """Of a weight in the trainer's passes and as a version travels: 2 is bf16, 4 fp32."""
    spans: tuple[int, ...] = ()
    """Machines that may run one replica where one does not hold the model, fewest first; empty: the engine cannot."""
    drop_share: float = Field(default=0.02, ge=0, lt=1)
    """Share of samples that are generated and never trained (zero variance, stale, lost)."""

    @model_validator(mode="before")
    @classmethod
    def _of_older_versions(cls, body: object) -> object:
        """Read a job that was stored when it had `recompute_prox`: a run must stay manageable whatever is installed."""
        if not isinstance(body, dict) or "recompute_prox" not in body:
            return body
        kept = {name: value for name, value in body.items() if name != "recompute_prox"}
        return kept if body["recompute_prox"] else {**kept, "prox_share": 0.0}

    @model_validator(mode="after")
    def _whole_groups(self) -> "Workload":
        if self.samples_per_step % self.group_size:
            raise ValueError(
                f"samples_per_step {self.samples_per_step} is not a multiple of group_size {self.group_size}"
            )
        if self.response_tokens > self.max_response_tokens:
            raise ValueError("response_tokens is over max_response_tokens")
        return self

    @property
    def version_bytes(self) -> float:
        """Bytes of one whole published version of the weights."""
        return float(self.model.params * self.published_bytes_per_param)

    @property
    def longest_tokens(self) -> float:
        """Tokens of the longest sample there may be."""
        return self.prompt_tokens + self.max_response_tokens

    @property
    def extra_forwards(self) -> float:
        """Forward passes of each sample beside the one that is trained through."""
        return self.prox_share + self.keeps_reference

    @property
    def tokens_per_sample(self) -> float:
        """Prompt and response tokens of a mean sample: the unit of every tok/s that a user sees."""
        return self.prompt_tokens + self.response_tokens

    @property
    def mean_context(self) -> float:
        """Mean live context over decode steps: prompt + E[L^2] / (2 E[L])."""
        return self.prompt_tokens + self.response_tokens * (1.0 + self.response_cv**2) / 2.0
