"""One training step: the groups of a batch become tensors, and four minibatches move the policy."""

import math
import random
from dataclasses import dataclass, field

import structlog
import torch
from transformers import PreTrainedModel

from hexcloud.domain.sample import Group, Sample
from hexcloud.runtime.loss import Loss, LossSettings, PolicyBatch, group_advantages, policy_loss
from hexcloud.runtime.trainer_model import pad, token_logprobs

log = structlog.get_logger()


@dataclass(frozen=True)
class StepSettings:
    """Measured to hold at staleness 0 to 8. A tenfold rate collapses within 20 steps; fewer prompts do too."""

    learning_rate: float = 1e-4
    ramp_steps: int = 10
    """Adam's first estimates are noisy: the rate grows to its value over this many steps."""
    betas: tuple[float, float] = (0.9, 0.95)
    minibatches: int = 4
    max_grad_norm: float = 1.0
    loss: LossSettings = field(default_factory=LossSettings)


@dataclass(frozen=True)
class StepNumbers:
    """What a step reports. Means over its minibatches; zeros when no group had variance or none was finite."""

    reward: float
    tokens: int
    """Prompt and response, of all samples."""
    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    prox_kl: float = 0.0


def make_optimizer(model: PreTrainedModel, settings: StepSettings) -> torch.optim.AdamW:
    """Return the optimizer of the RL steps."""
    return torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=0.0)


class TrainingStep:
    """Policy, optimizer and settings; `run` is one step."""

    def __init__(self, model: PreTrainedModel, optimizer: torch.optim.Optimizer, settings: StepSettings) -> None:
        self._model = model
        self._optimizer = optimizer
        self._settings = settings

    def run(self, groups: tuple[Group, ...], step: int, rng: random.Random) -> StepNumbers:
        """Train on whole groups. `step` counts from 0 since the warm start; the order of samples comes from `rng`."""
        samples = [sample for group in groups for sample in group.samples]
        reward = sum(sample.reward for sample in samples) / len(samples)
        tokens = sum(len(sample.prompt_ids) + len(sample.tokens) for sample in samples)
        graded = [pair for group in groups for pair in _grade(group)]
        if not graded:
            return StepNumbers(reward=reward, tokens=tokens)
        rng.shuffle(graded)
        ids = pad([sample.prompt_ids + sample.tokens for sample, _ in graded])
        batch = _policy_batch(graded, self._prox(ids), step)
        self._set_learning_rate(step)
        tried = [self._minibatch(ids, batch, rows) for rows in self._split(len(graded))]
        done = [outcome for outcome in tried if outcome is not None]
        if len(done) < len(tried):
            log.warning("minibatches_not_finite", step=step, skipped=len(tried) - len(done), of=len(tried))
        if not done:
            return StepNumbers(reward=reward, tokens=tokens)
        return StepNumbers(
            reward=reward,
            tokens=tokens,
            loss=_mean([float(loss.value.detach()) for loss, _ in done]),
            grad_norm=_mean([norm for _, norm in done]),
            clip_fraction=_mean([loss.clip_fraction for loss, _ in done]),
            prox_kl=_mean([loss.prox_kl for loss, _ in done]),
        )

    def _prox(self, ids: torch.Tensor) -> torch.Tensor:
        if self._settings.loss.kind in ("a3po", "naive"):  # which do without
            return torch.zeros(len(ids), ids.shape[1] - 1)
        with torch.no_grad():
            return token_logprobs(self._model, ids)

    def _minibatch(self, ids: torch.Tensor, batch: PolicyBatch, rows: torch.Tensor) -> tuple[Loss, float] | None:
        """Move the policy; return None, and leave it as it is, when a number of the loss or its gradient is not finite.

        Clipping is no help there: it makes every gradient NaN, and the update every weight.
        """
        loss = policy_loss(token_logprobs(self._model, ids[rows]), batch.rows(rows), self._settings.loss)
        self._optimizer.zero_grad()
        loss.value.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.max_grad_norm))
        if not all(map(math.isfinite, (norm, float(loss.value.detach()), loss.prox_kl))):
            self._optimizer.zero_grad()
            return None
        self._optimizer.step()
        return loss, norm

    def _split(self, count: int) -> tuple[torch.Tensor, ...]:
        return torch.arange(count).chunk(min(self._settings.minibatches, count))

    def _set_learning_rate(self, step: int) -> None:
        rate = self._settings.learning_rate * min(1.0, (step + 1) / self._settings.ramp_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate


def _grade(group: Group) -> list[tuple[Sample, float]]:
    """Pair samples with their advantages; a group in which all earned the same has nothing to teach."""
    advantages = group_advantages(torch.tensor([sample.reward for sample in group.samples])).tolist()
    return list(zip(group.samples, advantages, strict=True)) if any(advantages) else []


def _policy_batch(graded: list[tuple[Sample, float]], prox: torch.Tensor, version: int) -> PolicyBatch:
    """Lay behaviour logprobs and advantages over the response tokens; column t is about token t + 1."""
    behave, advantages, age, mask = (torch.zeros_like(prox) for _ in range(4))
    for row, (sample, advantage) in enumerate(graded):
        start = len(sample.prompt_ids) - 1
        span = slice(start, start + len(sample.tokens))
        behave[row, span] = torch.tensor(sample.logprobs)
        advantages[row, span] = advantage
        age[row, span] = version - torch.tensor(sample.versions)
        mask[row, span] = 1.0
    return PolicyBatch(behave=behave, prox=prox, advantages=advantages, mask=mask, age=age)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
