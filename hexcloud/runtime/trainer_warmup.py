"""Warm start: supervised steps until the policy is right now and then, so that RL has something to reinforce."""

import random
from dataclasses import dataclass

import structlog
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import CharacterTask
from hexcloud.runtime.trainer_model import accuracy, pad

log = structlog.get_logger()

_IGNORED = -100
"""cross_entropy's default mark of a target that does not count."""


@dataclass(frozen=True)
class WarmupSettings:
    """Measured: 140 to 160 steps on the default task. It stops on accuracy: a fixed count over- or undershoots."""

    accuracy: float = 0.30
    """At temperature 1; stop here, or greedy decoding is already right and RL has little left to gain."""
    learning_rate: float = 1e-3
    ramp_steps: int = 50
    batch: int = 128
    check_every: int = 20
    check_problems: int = 256
    max_steps: int = 2000


def warm_start(model: PreTrainedModel, task: CharacterTask, seed: int, settings: WarmupSettings) -> float:
    """Train on right answers until the accuracy is reached; return it. Raises EngineError after `max_steps`."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99))
    for step in range(1, settings.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, step / settings.ramp_steps)
        loss = _imitation_loss(model, [task.demonstration(rng) for _ in range(settings.batch)])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % settings.check_every:
            continue
        reached = accuracy(model, task, settings.check_problems, seed + step)
        log.info("warm_start", step=step, loss=round(float(loss.detach()), 4), accuracy=round(reached, 3))
        if reached >= settings.accuracy:
            return reached
    raise EngineError(f"the warm start did not reach accuracy {settings.accuracy} in {settings.max_steps} steps")


def _imitation_loss(model: PreTrainedModel, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> torch.Tensor:
    """Return the mean cross entropy per response token; prompts and padding do not count."""
    ids = pad([prompt + response for prompt, response in pairs])
    targets = torch.full_like(ids, _IGNORED)
    for row, (prompt, response) in enumerate(pairs):
        span = slice(len(prompt), len(prompt) + len(response))
        targets[row, span] = ids[row, span]
    logits: torch.Tensor = model(input_ids=ids[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=_IGNORED)
