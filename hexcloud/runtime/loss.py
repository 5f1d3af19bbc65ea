"""Loss: decoupled PPO on GRPO advantages, for samples that are a few versions old.

GRPO: arXiv 2402.03300, equation of section 4.1.2 (outcome supervision). Decoupled PPO: AReaL, arXiv 2505.24298,
section 5.2. With u = pi_theta/pi_prox and w = pi_prox/pi_behave, the objective of a token is
`w * min(u*A, clip(u, 1-eps, 1+eps)*A)`: the trust region lies around the policy at the start of the step, and w
only corrects for the policy that made the sample.
"""

from dataclasses import dataclass

import torch

_LEAST_STD = 1e-6
"""Below this all samples of a group earned the same, and the group teaches nothing."""

_STD_FLOOR = 1e-4


@dataclass(frozen=True)
class LossSettings:
    """Measured to hold on the default task at staleness 0 to 8."""

    kind: str = "decoupled"
    """`decoupled`; `a3po` (arXiv 2512.06547): prox between behaviour and current policy, by age, without a forward
    pass; `naive`: PPO around the behaviour policy; `uncorrected`: stale samples taken as on-policy."""

    clip: float = 0.2
    """eps: half the width of the trust region."""
    behave_cap: float = 5.0
    """Tokens with w above this are dropped: single tokens of stale samples drift by up to 11 nats."""


@dataclass(frozen=True)
class PolicyBatch:
    """What a loss needs of some samples, beside the policy that is trained. All tensors are [samples, tokens], fp32."""

    behave: torch.Tensor
    """Logprobs under the weights that made each token."""
    prox: torch.Tensor
    """Logprobs under the weights at the start of the step."""
    advantages: torch.Tensor
    mask: torch.Tensor
    """1 at response tokens, 0 at prompt and padding."""
    age: torch.Tensor | None = None
    """Versions between the weights that made each token and those at the start of the step; only A-3PO asks."""

    def rows(self, index: torch.Tensor) -> "PolicyBatch":
        """Return some of the samples."""
        age = None if self.age is None else self.age[index]
        return PolicyBatch(self.behave[index], self.prox[index], self.advantages[index], self.mask[index], age)


@dataclass(frozen=True)
class Loss:
    """`value` is a scalar with a gradient; the rest is for people to watch."""

    value: torch.Tensor
    clip_fraction: float
    """Share of tokens whose gradient the trust region stopped. Healthy: under 0.08; over 0.13: learning slows."""
    prox_kl: float
    """Mean of behave - prox, nats per token: an estimate of KL(behave, prox). Healthy: 0.01 to 0.06."""


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Return each sample's reward against its group [samples], in standard deviations; zeros when all are equal."""
    spread = rewards.std()
    if spread < _LEAST_STD:
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (spread + _STD_FLOOR)


def policy_loss(logprobs: torch.Tensor, batch: PolicyBatch, settings: LossSettings) -> Loss:
    """Return the mean loss per response token for logprobs [samples, tokens] of the policy being trained."""
    tokens = batch.mask.sum()
    anchor = _anchor(logprobs.detach(), batch, settings.kind)
    correction = torch.exp(anchor - batch.behave)
    correction = correction * (correction <= settings.behave_cap)
    if settings.kind in ("naive", "uncorrected"):
        correction = torch.ones_like(correction)
    ratio = torch.exp(logprobs - anchor)
    free = ratio * batch.advantages
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip) * batch.advantages
    objective = correction * torch.minimum(free, clipped)
    return Loss(
        value=-(objective * batch.mask).sum() / tokens,
        clip_fraction=float(((clipped < free) * batch.mask).sum() / tokens),
        prox_kl=float(((batch.behave - batch.prox) * batch.mask).sum() / tokens),
    )


def _anchor(current: torch.Tensor, batch: PolicyBatch, kind: str) -> torch.Tensor:
    """Return the logprobs of the policy around which the trust region lies."""
    if kind == "a3po":
        assert batch.age is not None  # TrainingStep gives it
        return batch.behave + batch.age / (batch.age + 1) * (current - batch.behave)
    return batch.behave if kind == "naive" else batch.prox
