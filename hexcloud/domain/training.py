"""TrainingSpec: how the policy is trained; `training:` of run.yaml."""

from enum import StrEnum
from math import cos, pi

from pydantic import ConfigDict, Field, model_validator

from hexcloud.domain.frozen import Frozen

PASS_TOKENS = 8192
"""Most tokens of a rank's forward pass where neither user nor plan says."""


class LossKind(StrEnum):
    """What stands in for the policy that made a sample, and whether its age is corrected for."""

    DECOUPLED = "decoupled"
    """Trust region around the policy at the start of the step, recomputed; behaviour corrected for by a weight."""
    A3PO = "a3po"
    """The same without the forward pass: that policy is interpolated between behaviour and current policy."""
    NAIVE = "naive"
    """PPO as if the behaviour policy were the one at the start of the step: ratio and trust region lie around it."""
    UNCORRECTED = "uncorrected"
    """Stale samples are taken as on-policy. For comparison only: it forgets what it knows when samples are old."""


class Decay(StrEnum):
    """What the learning rate does after its ramp."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class Precision(StrEnum):
    """Type of activations, of the weights they meet, and of the versions that are published.

    Optimizer, gradient sums and the weights that they move are fp32 in both.
    """

    FP32 = "fp32"
    BF16 = "bf16"

    @property
    def bytes_per_value(self) -> int:
        """Of a published weight."""
        return 2 if self is Precision.BF16 else 4


class LayoutKind(StrEnum):
    """How weights, gradients and moments spread over the ranks. What stands here the trainer runs and plans weigh.

    Of layouts that are equally fast a plan takes the one that stands first.
    """

    FSDP = "fsdp"
    """Sharded over all ranks."""
    HSDP = "hsdp"
    """Sharded inside each machine, a copy on every machine."""
    TP = "tp"
    """Tensor parallel inside each machine, sharded over machines."""


class TrainingSpec(Frozen):
    """The trainer's settings. The defaults hold on the default task at staleness 0 to 8 (measured)."""

    model_config = ConfigDict(allow_inf_nan=False)

    learning_rate: float = Field(default=1e-4, gt=0)
    ramp_steps: int = Field(default=10, gt=0)
    """Adam's first estimates are noisy: the rate grows to its value over this many steps."""
    decay: Decay = Decay.CONSTANT
    decay_to: float = Field(default=0.1, ge=0, le=1)
    """Share of the learning rate that is left at the run's last step."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    minibatches: int = Field(default=4, gt=0)
    """Updates per step."""
    loss: LossKind = LossKind.DECOUPLED
    clip: float = Field(default=0.2, gt=0, lt=1)
    """Half the width of the trust region."""
    importance_cap: float = Field(default=5.0, gt=1)
    """Tokens whose importance weight is above this are dropped: single stale tokens drift by up to 11 nats."""
    kl_weight: float = Field(default=0.0, ge=0)
    """Weight of KL(policy, reference) in the loss; 0: no reference is kept."""
    reference: str | None = None
    """Hugging Face folder of the frozen reference on the trainer's head; null: the policy as RL begins."""
    micro_batch_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of one forward pass of a rank, padding included; a longer sequence is a pass of its own. null: as
    many as a plan finds room for on rented machines, PASS_TOKENS where they are emulated."""
    precision: Precision | None = None
    """null: bf16 on rented machines, which is what plans count; fp32 where machines are emulated."""
    activation_checkpointing: bool | None = None
    """Recompute a layer's activations in the backward pass instead of keeping them. null: on rented machines, where
    plans count with it; not where they are emulated."""
    layout: LayoutKind | None = None
    """How the state spreads over the ranks; null: as planned."""
    ranks: int | None = Field(default=None, gt=0)
    """Processes on each machine of the trainer; null: one for each GPU, and one where machines are emulated."""

    @model_validator(mode="after")
    def _reference_is_used(self) -> "TrainingSpec":
        if self.reference is not None and not self.kl_weight:
            raise ValueError("a reference is only used with kl_weight above 0; set it, or leave the reference out")
        return self

    @property
    def pass_tokens(self) -> int:
        """Most tokens of one forward pass where no plan says how many there is room for."""
        return self.micro_batch_tokens or PASS_TOKENS

    @property
    def prox_share(self) -> float:
        """Share of a batch with one more forward pass for the policy at the step's start: the first minibatch needs
        none, as it is trained by that policy."""
        return 1.0 - 1.0 / self.minibatches if self.recomputes_prox else 0.0

    @property
    def recomputes_prox(self) -> bool:
        """Does a step begin with a forward pass for the policy at its start?"""
        return self.loss in {LossKind.DECOUPLED, LossKind.UNCORRECTED}

    def rate_at(self, step: int, steps: int) -> float:
        """Return the share of the learning rate at a step, counted from 0, of a run of `steps`."""
        if step < self.ramp_steps:
            return (step + 1) / self.ramp_steps
        done = min(1.0, (step - self.ramp_steps) / max(1, steps - 1 - self.ramp_steps))
        return self.decay_to + (1 - self.decay_to) * _left(self.decay, done)


def _left(decay: Decay, done: float) -> float:
    """Return what a decay leaves of its range, 1 to 0, when this share of it is done."""
    if decay is Decay.CONSTANT:
        return 1.0
    if decay is Decay.LINEAR:
        return 1.0 - done
    return (1.0 + cos(pi * done)) / 2.0
