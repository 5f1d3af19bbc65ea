import math
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from hexcloud.domain.formation import Formation
from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.sample import Group
from hexcloud.domain.training import LayoutKind, LossKind, TrainingSpec
from hexcloud.runtime.rewards import reward
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import accuracy, build_model, sample
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_state import TrainingState
from hexcloud.runtime.trainer_step import Moment, TrainingStep
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start
from tests.runtime.training import ALONE, Draw, act, groups_of, right_and_wrong, small_model, state_of

SETTINGS = TrainingSpec(ramp_steps=1)
START = Moment(version=0, steps=100)


@dataclass
class Learner:
    """A step and what it moves."""

    state: TrainingState
    step: TrainingStep

    @property
    def model(self) -> PreTrainedModel:
        return self.state.policy.model

    def run(self, groups: tuple[Group, ...], version: int = 0) -> StepNumbers:
        return self.step.run(groups, Moment(version, START.steps), random.Random(version))


def learner(settings: TrainingSpec = SETTINGS, ranks: Ranks | None = None, seed: int = 3) -> Learner:
    state = state_of(small_model(seed), settings, ranks)
    return Learner(state, TrainingStep(state, ranks or Ranks(0, ALONE), settings))


def chance(model: PreTrainedModel, draws: list[list[Draw]], earned: float) -> float:
    """Mean logprob of the responses that earned this."""
    groups = groups_of(model, draws)
    values = [sum(s.logprobs) for group in groups for s in group.samples if s.reward == earned]
    return sum(values) / len(values)


@pytest.mark.parametrize("kind", LossKind)
def test_one_step_moves_probability_from_unrewarded_to_rewarded_samples(kind: LossKind) -> None:
    draws, one = right_and_wrong(8), learner(SETTINGS.model_copy(update={"loss": kind}))
    before = chance(one.model, draws, 1.0) - chance(one.model, draws, 0.0)
    numbers = one.run(groups_of(one.model, draws))
    assert chance(one.model, draws, 1.0) - chance(one.model, draws, 0.0) > before
    assert numbers.reward == 0.5
    assert numbers.tokens == sum(len(prompt) + len(response) for group in draws for prompt, response, _ in group)
    assert numbers.trained_tokens == numbers.tokens - 64  # the last token of a sample predicts nothing
    assert numbers.grad_norm > 0
    assert numbers.prox_kl == pytest.approx(0.0, abs=1e-5)
    assert numbers.importance == pytest.approx(1.0, abs=1e-5)
    assert 0 < numbers.entropy < math.log(21)


@pytest.mark.parametrize("kind", LossKind)
def test_a_step_draws_no_random_number_of_its_own(kind: LossKind) -> None:
    """So a change of size, which carries no random state, changes nothing."""
    one = learner(SETTINGS.model_copy(update={"loss": kind, "kl_weight": 0.1, "activation_checkpointing": True}))
    groups, before = groups_of(one.model, right_and_wrong(8)), (torch.get_rng_state(), random.getstate())
    assert one.run(groups).grad_norm > 0
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_groups_without_variance_change_nothing() -> None:
    one = learner()
    prompt, right = SORT_DIGITS.demonstration(random.Random(0))
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    numbers = one.run(groups_of(one.model, [[(prompt, right, 1.0)] * 4]))
    assert numbers == StepNumbers(reward=1.0, tokens=4 * (len(prompt) + len(right)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.model.state_dict().items())


def test_the_same_step_twice_gives_the_same_weights() -> None:
    results = []
    for _ in range(2):
        one = learner()
        one.run(groups_of(one.model, right_and_wrong(2)), 5)
        results.append(one.model.lm_head.weight.detach())
    assert torch.equal(*results)


def test_the_learning_rate_of_each_step_is_that_of_the_settings() -> None:
    one = learner(TrainingSpec())
    rates = [one.run(groups_of(one.model, right_and_wrong(1)), number).learning_rate for number in (0, 4, 9, 50)]
    assert rates == pytest.approx([1e-5, 5e-5, 1e-4, 1e-4])


def test_a_drifted_behaviour_policy_shows_in_the_numbers() -> None:
    one = learner()
    groups = groups_of(one.model, right_and_wrong(2))
    drifted = tuple(spoilt_by(group, lambda value: value + 0.1) for group in groups)
    numbers = one.run(drifted)
    assert numbers.prox_kl == pytest.approx(0.1, abs=1e-5)
    assert numbers.importance == pytest.approx(math.exp(-0.1), abs=1e-5)


def test_old_tokens_show_their_age() -> None:
    one = learner()
    assert one.run(groups_of(one.model, right_and_wrong(2), version=3), 5).token_age == 2.0


def test_a_budget_of_tokens_changes_nothing_but_the_passes() -> None:
    groups = groups_of(small_model(), right_and_wrong(4), drift=0.1)
    many, one = (learner(SETTINGS.model_copy(update={"micro_batch_tokens": most})) for most in (64, 8192))
    a, b = many.run(groups), one.run(groups)
    assert a.loss == pytest.approx(b.loss, rel=1e-5) and a.grad_norm == pytest.approx(b.grad_norm, rel=1e-5)


def test_checkpointed_activations_give_the_same_gradient() -> None:
    groups = groups_of(small_model(), right_and_wrong(2), drift=0.1)
    kept, again = (learner(SETTINGS.model_copy(update={"activation_checkpointing": on})) for on in (False, True))
    assert kept.run(groups).grad_norm == pytest.approx(again.run(groups).grad_norm, rel=1e-6)


def test_logits_in_parts_give_the_same_gradient_and_numbers() -> None:
    groups = groups_of(small_model(), right_and_wrong(2), drift=0.1)
    whole, parted = learner(), learner()
    parted.state.policy.head_tokens = 50
    assert whole.run(groups).model_dump() == pytest.approx(parted.run(groups).model_dump(), rel=1e-5, abs=1e-7)


def test_a_reference_holds_the_policy_back() -> None:
    free, held = (learner(SETTINGS.model_copy(update={"kl_weight": weight})) for weight in (1e-9, 20.0))
    draws = right_and_wrong(8)
    kl = []
    for one in (free, held):
        for version in range(4):
            numbers = one.run(groups_of(one.model, draws), version)
        kl.append(numbers.kl)
    assert 0 < kl[1] < 0.7 * kl[0]


@pytest.mark.slow
def test_forty_steps_after_the_warm_start_raise_the_accuracy() -> None:
    model = build_model(SORT_DIGITS, seed=0)
    warm_start(model, SORT_DIGITS, 0, WarmupSettings())
    before = accuracy(model, SORT_DIGITS, 512, seed=777)
    state = state_of(model, SETTINGS)
    one = Learner(state, TrainingStep(state, Ranks(0, ALONE), SETTINGS))
    generator = torch.Generator().manual_seed(0)
    rewards = []
    for number in range(40):
        problems = [SORT_DIGITS.prompt(number, index) for index in range(32)]
        prompts = [prompt for prompt, _ in problems for _ in range(8)]
        responses = sample(one.model, prompts, SORT_DIGITS.max_new_tokens, generator)
        draws = [
            [(prompt, tokens, reward(SORT_DIGITS, tokens, answer)) for tokens in responses[8 * i : 8 * i + 8]]
            for i, (prompt, answer) in enumerate(problems)
        ]
        rewards.append(one.run(groups_of(one.model, draws, version=number), number).reward)
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + 0.03
    assert accuracy(one.model, SORT_DIGITS, 512, seed=777) > before + 0.05


def spoilt_by(group: Group, change: "partial[float] | object") -> Group:
    """Every logprob becomes another; as if it had passed every check."""
    assert callable(change)
    samples = (
        one.model_copy(update={"logprobs": tuple(change(value) for value in one.logprobs)}) for one in group.samples
    )
    return group.model_copy(update={"samples": tuple(samples)})


def spoilt(group: Group, logprob: float) -> Group:
    """The first sample's first logprob becomes this."""
    first = group.samples[0]
    first = first.model_copy(update={"logprobs": (logprob, *first.logprobs[1:])})
    return group.model_copy(update={"samples": (first, *group.samples[1:])})


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_a_minibatch_that_is_not_finite_is_skipped_and_the_others_are_trained(bad: float) -> None:
    one = learner()
    before = one.model.lm_head.weight.detach().clone()
    first, *rest = groups_of(one.model, right_and_wrong(4))
    numbers = one.run((spoilt(first, bad), *rest))
    assert all(bool(tensor.isfinite().all()) for tensor in one.model.state_dict().values())
    assert not torch.equal(one.model.lm_head.weight, before)
    assert all(map(math.isfinite, (numbers.loss, numbers.grad_norm, numbers.prox_kl, numbers.clip_fraction)))
    assert numbers.grad_norm > 0
    assert numbers.skipped_minibatches == 1


@pytest.mark.parametrize("far", [-95.0, -120.0, -1e4])
def test_one_token_that_nobody_would_have_sampled_costs_no_minibatch(far: float) -> None:
    one = learner()
    before = one.model.lm_head.weight.detach().clone()
    numbers = one.run(tuple(spoilt(group, far) for group in groups_of(one.model, right_and_wrong(4))))
    assert numbers.skipped_minibatches == 0
    assert numbers.importance_dropped > 0 and numbers.grad_norm > 0
    assert not torch.equal(one.model.lm_head.weight, before)


def test_a_step_of_which_nothing_is_finite_leaves_the_weights_and_can_be_followed_by_a_good_one() -> None:
    one = learner(SETTINGS.model_copy(update={"minibatches": 1}))
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    good = groups_of(one.model, right_and_wrong(1))
    numbers = one.run((spoilt(good[0], float("nan")),))
    assert (numbers.loss, numbers.grad_norm, numbers.prox_kl) == (0.0, 0.0, 0.0)
    assert numbers.skipped_minibatches == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.model.state_dict().items())
    assert one.run(good, 1).grad_norm > 0


RECORDED = 3
"""Batches of the recorded sequence."""


def recorded() -> list[tuple[Group, ...]]:
    """A sequence of batches, a few versions old, as a run would have kept it."""
    model = small_model(4)
    return [groups_of(model, right_and_wrong(6)[batch:], drift=0.2) for batch in range(RECORDED)]


def by_batch(settings: TrainingSpec, ranks: Ranks | None = None) -> list[tuple[StepNumbers, torch.Tensor]]:
    """Train each recorded batch from weights of its own: its numbers, and its first minibatch's clipped gradient."""
    found = []
    for version, groups in enumerate(recorded()):
        one = following(settings, ranks, seed=3 + version)
        gradients: list[torch.Tensor] = []
        one.state.optimizer.register_step_pre_hook(partial(_keep_gradient, one, gradients))
        found.append((one.run(groups, version), gradients[0]))
    return found


def in_sequence(settings: TrainingSpec, ranks: Ranks | None = None) -> tuple[list[StepNumbers], torch.Tensor]:
    """Train the recorded sequence: the numbers of each step, the weights at its end."""
    one = following(settings, ranks, seed=3)
    numbers = [one.run(groups, version) for version, groups in enumerate(recorded())]
    return numbers, torch.cat([weight.flatten() for _, weight in one.state.weights()])


def following(settings: TrainingSpec, ranks: Ranks | None, seed: int) -> Learner:
    """A learner whose head is cut otherwise than the reference's, if it is not the reference."""
    one = learner(settings, ranks, seed)
    one.state.policy.head_tokens = 4096 if ranks is None else 100
    return one


def _keep_gradient(one: Learner, kept: list[torch.Tensor], *_: object) -> None:
    if not kept:
        kept.append(_gradient(one))


def _gradient(one: Learner) -> torch.Tensor:
    grads = (weight.grad for weight in one.model.parameters())
    whole = (grad.full_tensor() if hasattr(grad, "full_tensor") else grad for grad in grads if grad is not None)
    return torch.cat([grad.detach().flatten().clone() for grad in whole])


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def _is_the_same_as_alone(ranks: Ranks, settings: TrainingSpec) -> None:
    for (mine, gradient), (theirs, wanted_gradient) in zip(by_batch(settings, ranks), by_batch(settings), strict=True):
        assert mine.model_dump() == pytest.approx(theirs.model_dump(), rel=1e-5, abs=1e-7)
        assert distance(gradient, wanted_gradient) < 1e-5
    numbers, weights = in_sequence(settings, ranks)
    wanted, wanted_weights = in_sequence(settings)
    for mine, theirs in zip(numbers, wanted, strict=True):
        # Weights of later steps differ by Adam's view of rounding: where a gradient is zero but for that.
        assert mine.model_dump() == pytest.approx(theirs.model_dump(), rel=1e-4, abs=1e-7)
    assert distance(weights, wanted_weights) < 1e-5


@pytest.mark.parametrize("loss", [LossKind.DECOUPLED, LossKind.A3PO])
def test_two_ranks_have_the_loss_and_gradients_of_one(loss: LossKind, tmp_path: Path) -> None:
    settings = TrainingSpec(ramp_steps=1, loss=loss, kl_weight=0.1, micro_batch_tokens=256)
    act(partial(_is_the_same_as_alone, settings=settings), Formation(LayoutKind.FSDP, 2, 1), settings, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "formation",
    [
        Formation(LayoutKind.FSDP, 3, 1),
        Formation(LayoutKind.FSDP, 4, 1),
        Formation(LayoutKind.HSDP, 2, 2),
        Formation(LayoutKind.TP, 1, 2),
        Formation(LayoutKind.TP, 2, 2),
    ],
    ids=lambda formation: f"{formation.kind}-{formation.machines}x{formation.ranks}",
)
def test_any_formation_has_the_loss_and_gradients_of_one_rank(formation: Formation, tmp_path: Path) -> None:
    settings = TrainingSpec(ramp_steps=1, layout=formation.kind, kl_weight=0.1, micro_batch_tokens=256)
    act(partial(_is_the_same_as_alone, settings=settings), formation, settings, tmp_path)


LOW = TrainingSpec(ramp_steps=1, precision="bf16")


def _is_close_to_fp32(ranks: Ranks) -> None:
    low, _ = in_sequence(LOW, ranks)
    high, _ = in_sequence(TrainingSpec(ramp_steps=1))
    for mine, theirs in zip(low, high, strict=True):
        assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=0.1)
        assert mine.entropy == pytest.approx(theirs.entropy, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_bf16_follows_fp32_closely(ranks: int, tmp_path: Path) -> None:
    act(_is_close_to_fp32, Formation(LayoutKind.FSDP, ranks, 1), LOW, tmp_path)
