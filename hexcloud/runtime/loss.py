"""Loss: PPO on GRPO advantages, for samples that are a few versions old.

With the anchor as the policy around which the trust region lies, u = pi_theta/pi_anchor and w = pi_anchor/pi_behave,
the objective of a token is `w * min(u*A, clip(u, 1-eps, 1+eps)*A)`. The kinds differ in anchor and w:

decoupled    anchor = policy at the start of the step, recomputed    AReaL, arXiv 2505.24298, section 5.2
a3po         anchor = behaviour^(1-a) * theta^a, a = (v - b) / (v + 1 - b)    A-3PO, arXiv 2512.06547
naive        anchor = behaviour, so w = 1    PPO, arXiv 1707.06347
uncorrected  anchor as decoupled, w = 1    stale samples taken as on-policy

where v is the version at the start of the step and b the one that made the token. GRPO: arXiv 2402.03300, section 4.1.2
(outcome supervision); its KL estimate is exp(r) - r - 1 with r = log pi_ref - log pi_theta.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import torch

from hexcloud.domain.training import LossKind, TrainingSpec

_LEAST_STD = 1e-6
"""Below this all samples of a group earned the same, and the group teaches nothing."""

_STD_FLOOR = 1e-4

_MOST_LOG_RATIO = 20.0
"""Beyond it a ratio of probabilities is taken as e^20 and has no gradient: fp32 ends at e^88, and one infinite ratio
would make every gradient NaN."""

TALLIES = (
    "loss",
    "clip_fraction",
    "prox_kl",
    "importance",
    "importance_dropped",
    "kl",
    "entropy",
    "token_age",
)
"""What a Loss sums over tokens, in the order of its `tallies`; their means are fields of StepNumbers."""


@dataclass(frozen=True)
class Tokens:
    """What a loss needs of some response tokens, beside the policy that is trained. All tensors are [tokens], fp32."""

    behave: torch.Tensor
    """Logprobs under the weights that made each token."""
    advantages: torch.Tensor
    age: torch.Tensor
    """Versions between those weights and the ones at the start of the step."""
    prox: torch.Tensor | None = None
    """Logprobs under the weights at the start of the step; None: those being trained still are these."""
    reference: torch.Tensor | None = None
    """Logprobs under the frozen reference."""


@dataclass(frozen=True)
class Loss:
    """Sums over tokens, so that parts of a minibatch on any number of ranks add up."""

    value: torch.Tensor
    """Scalar with a gradient."""
    tallies: torch.Tensor
    """[len(TALLIES)], fp64, for people to watch."""


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Return each sample's reward against its group, in standard deviations; zeros when all are equal.

    Finite for all finite rewards: they are taken in units of the largest where that is over 1.
    """
    unit = max(1.0, max(rewards), -min(rewards))
    scaled = rewards if unit == 1.0 else [one / unit for one in rewards]
    mean = sum(scaled) / len(scaled)
    spread = sqrt(sum((one - mean) ** 2 for one in scaled) / max(1, len(scaled) - 1))
    return [0.0 if spread < _LEAST_STD / unit else (one - mean) / (spread + _STD_FLOOR / unit) for one in scaled]


def policy_loss(logprobs: torch.Tensor, entropy: torch.Tensor, tokens: Tokens, settings: TrainingSpec) -> Loss:
    """Return the summed loss for logprobs [tokens] of the policy being trained; `entropy` [tokens] is only told.

    Value and gradient are finite for all finite logprobs.
    """
    anchor = _anchor(logprobs.detach(), tokens, settings.loss)
    weight, dropped = _importance(anchor - tokens.behave, settings)
    ratio = torch.exp((logprobs - anchor).clamp(max=_MOST_LOG_RATIO))
    free = ratio * tokens.advantages
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip) * tokens.advantages
    gains = weight * torch.minimum(free, clipped)
    kl = _kl(logprobs, tokens.reference)
    value = (settings.kl_weight * kl - gains).sum()
    with torch.no_grad():
        rows = (gains, clipped < free, tokens.behave - anchor, weight, dropped, kl, entropy, tokens.age)
        tallies = torch.stack(rows).sum(1, dtype=torch.float64)
        tallies[0] = value.double()
    return Loss(value, tallies)


def _importance(gap: torch.Tensor, settings: TrainingSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight of each token, and which are dropped: their weight is 0, also where it would be infinite."""
    if settings.loss not in {LossKind.DECOUPLED, LossKind.A3PO}:
        return torch.ones_like(gap), torch.zeros_like(gap)
    dropped = gap > log(settings.importance_cap)
    return torch.exp(gap).masked_fill(dropped, 0.0), dropped


def _anchor(current: torch.Tensor, tokens: Tokens, kind: LossKind) -> torch.Tensor:
    if kind is LossKind.NAIVE:
        return tokens.behave
    if kind is LossKind.A3PO:
        share = tokens.age / (tokens.age + 1)
        return tokens.behave + share * (current - tokens.behave)
    return current if tokens.prox is None else tokens.prox


def _kl(logprobs: torch.Tensor, reference: torch.Tensor | None) -> torch.Tensor:
    if reference is None:
        return torch.zeros_like(logprobs)
    distance = (reference - logprobs).clamp(max=_MOST_LOG_RATIO)
    return torch.exp(distance) - distance - 1
