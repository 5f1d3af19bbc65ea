"""One training step: the groups of a batch become packs, and minibatches move the policy, on any number of ranks.

Every rank is given the whole batch and deals it out alike. A minibatch's loss is the mean over its tokens on all ranks
and in all passes, so how many there are changes nothing but the order of sums.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
import torch

from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.packing import deal, layouts, split
from hexcloud.domain.sample import Group
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.loss import TALLIES, group_advantages, policy_loss
from hexcloud.runtime.trainer_pack import Graded, Pack, make_pack
from hexcloud.runtime.trainer_policy import Policy, only_last_syncs
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_state import TrainingState

log = structlog.get_logger()

_CLIP_FLOOR = 1e-6
"""As torch's clip_grad_norm_ adds to the norm."""


_MEANS = (*TALLIES, "grad_norm")


@dataclass(frozen=True)
class Moment:
    """When in a run a step is."""

    version: int
    """Of the weights at its start: also the number of steps before it."""
    steps: int
    """Of the run."""


class TrainingStep:
    """State, ranks and settings; `run` is one step."""

    def __init__(self, state: TrainingState, ranks: Ranks, settings: TrainingSpec) -> None:
        self._state = state
        self._ranks = ranks
        self._settings = settings

    def run(self, groups: tuple[Group, ...], moment: Moment, rng: random.Random) -> StepNumbers:
        """Train on whole groups; the order of samples comes from `rng`, which is alike on every rank."""
        samples = [sample for group in groups for sample in group.samples]
        numbers = StepNumbers(
            reward=sum(sample.reward for sample in samples) / len(samples),
            tokens=sum(len(sample.prompt_ids) + len(sample.tokens) for sample in samples),
        )
        graded = [one for group in groups for one in _grade(group)]
        if not graded:
            return numbers
        rng.shuffle(graded)
        rate = self._set_learning_rate(moment)
        parts = split(graded, self._settings.minibatches)
        packed = self._tell_apart([self._packs(part, moment.version) for part in parts])
        done = [outcome for part, packs in zip(parts, packed, strict=True) if (outcome := self._minibatch(part, packs))]
        if skipped := len(parts) - len(done):
            log.warning("minibatches_not_finite", step=moment.version, skipped=skipped, of=len(parts))
        means = {name: _mean([tallies[name] for tallies in done]) for name in _MEANS}
        facts = {"trained_tokens": sum(one.length for one in graded), "skipped_minibatches": skipped}
        return numbers.model_copy(update={**facts, "learning_rate": rate, **means})

    def _packs(self, samples: Sequence[Graded], version: int) -> list[Pack]:
        """Return this rank's passes. All ranks have equally many, as each pass is one of all: some may be empty."""
        passes = [layouts(hand, self._settings.pass_tokens) for hand in deal(samples, self._ranks.data_ranks)]
        own, most = passes[self._ranks.data_rank], max(map(len, passes))
        return [make_pack(rows, version, self._ranks.device) for rows in [*own, *[[]] * (most - len(own))]]

    def _tell_apart(self, packed: list[list[Pack]]) -> list[list[Pack]]:
        """Add what other policies say of the tokens: the one at the step's start, and the reference.

        The first minibatch starts from the very weights that the step does: its own logprobs are those.
        """
        policy, reference = self._state.policy, self._state.reference
        told = []
        for number, packs in enumerate(packed):
            prox = policy if number and self._settings.recomputes_prox else None
            told.append([_with(_with(pack, "prox", prox), "reference", reference) for pack in packs])
        return told

    def _minibatch(self, samples: Sequence[Graded], packs: list[Pack]) -> dict[str, float] | None:
        """Move the policy; return None, and leave it as it is, when a number of the loss or its gradient is not finite.

        Clipping is no help there: it makes every gradient NaN, and the update every weight.
        """
        state, tokens = self._state, sum(len(one.sample.tokens) for one in samples)
        tallies = torch.zeros(len(TALLIES), dtype=torch.float64)
        for number, pack in enumerate(packs):
            only_last_syncs(state.policy, number == len(packs) - 1)
            logprobs, entropy = state.policy(pack)
            loss = policy_loss(logprobs, entropy, pack.tokens, self._settings)
            # FSDP2 averages over ranks; the mean is over the tokens of all of them.
            (loss.value * (self._ranks.data_ranks / tokens)).backward()  # type: ignore[no-untyped-call]
            tallies += loss.tallies.cpu()
        gradients = state.gradients()
        squares = _squares(gradients) if gradients else torch.zeros(())
        copies = self._ranks.size / self._ranks.data_ranks
        total = self._ranks.sum(torch.cat([tallies / copies, squares.double().cpu()[None] / self._ranks.size]))
        norm = math.sqrt(max(0.0, float(total[-1]))) if bool(total.isfinite().all()) else math.nan
        if math.isfinite(norm):
            self._clip([gradient for gradient, _ in gradients], norm)
            state.optimizer.step()
        state.forget_gradients()
        means = [*(total[:-1] / tokens).tolist(), norm]
        return dict(zip(_MEANS, means, strict=True)) if math.isfinite(norm) else None

    def _clip(self, gradients: list[torch.Tensor], norm: float) -> None:
        scale = self._settings.max_grad_norm / (norm + _CLIP_FLOOR)
        if scale < 1:
            torch._foreach_mul_(gradients, scale)

    def _set_learning_rate(self, moment: Moment) -> float:
        rate = self._settings.learning_rate * self._settings.rate_at(moment.version, moment.steps)
        for group in self._state.optimizer.param_groups:
            group["lr"] = rate
        return rate


def _squares(gradients: list[tuple[torch.Tensor, int]]) -> torch.Tensor:
    """Return this rank's squared norm so that the mean over ranks is the whole's: what is cut counts once for each."""
    norms = torch.stack(torch._foreach_norm([gradient for gradient, _ in gradients])).double()
    return norms.square() @ torch.tensor([spread for _, spread in gradients], dtype=torch.float64, device=norms.device)


@torch.no_grad()
def _with(pack: Pack, name: str, policy: Policy | None) -> Pack:
    """Return the pack with the logprobs of a policy."""
    if policy is None:
        return pack
    return replace(pack, tokens=replace(pack.tokens, **{name: policy(pack, with_entropy=False)[0]}))


def _grade(group: Group) -> list[Graded]:
    """Pair samples with their advantages; a group in which all earned the same has nothing to teach."""
    advantages = group_advantages([sample.reward for sample in group.samples])
    return [Graded(*pair) for pair in zip(group.samples, advantages, strict=True)] if any(advantages) else []


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
