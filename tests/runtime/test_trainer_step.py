import math
import random

import pytest
import torch
from transformers import PreTrainedModel

from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample
from hexcloud.runtime.rewards import reward
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import accuracy, build_model, pad, sample, token_logprobs
from hexcloud.runtime.trainer_step import StepNumbers, StepSettings, TrainingStep, make_optimizer
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start

Draw = tuple[tuple[int, ...], tuple[int, ...], float]
"""Prompt, response, reward."""


def groups_of(model: PreTrainedModel, draws: list[list[Draw]]) -> tuple[Group, ...]:
    """Make groups whose behaviour logprobs are the model's own: on-policy data."""
    groups = []
    for number, members in enumerate(draws):
        with torch.no_grad():
            logprobs = token_logprobs(model, pad([prompt + response for prompt, response, _ in members]))
        samples = tuple(
            Sample(
                lease=LeaseId(f"{number}.{index}"),
                attempt=0,
                group=GroupId(number),
                index=index,
                epoch=0,
                prompt_ids=prompt,
                tokens=response,
                logprobs=tuple(logprobs[index, len(prompt) - 1 : len(prompt) - 1 + len(response)].tolist()),
                versions=(0,) * len(response),
                reward=earned,
            )
            for index, (prompt, response, earned) in enumerate(members)
        )
        groups.append(Group(id=GroupId(number), samples=samples))
    return tuple(groups)


def right_and_wrong(count: int) -> list[list[Draw]]:
    rng = random.Random(1)
    draws: list[list[Draw]] = []
    for _ in range(count):
        prompt, right = SORT_DIGITS.demonstration(rng)
        wrong = tuple(rng.sample(right, len(right)))
        draws.append([(prompt, right, 1.0), (prompt, wrong, 0.0)] * 4)
    return draws


def step_of(model: PreTrainedModel) -> TrainingStep:
    settings = StepSettings(ramp_steps=1)
    return TrainingStep(model, make_optimizer(model, settings), settings)


def chance(model: PreTrainedModel, draws: list[list[Draw]], earned: float) -> float:
    """Mean logprob of the responses that earned this."""
    groups = groups_of(model, draws)
    values = [sum(s.logprobs) for group in groups for s in group.samples if s.reward == earned]
    return sum(values) / len(values)


@pytest.fixture
def model() -> PreTrainedModel:
    return build_model(SORT_DIGITS, seed=3)


def test_one_step_moves_probability_from_unrewarded_to_rewarded_samples(model: PreTrainedModel) -> None:
    draws = right_and_wrong(8)
    before = chance(model, draws, 1.0) - chance(model, draws, 0.0)
    numbers = step_of(model).run(groups_of(model, draws), 0, random.Random(0))
    assert chance(model, draws, 1.0) - chance(model, draws, 0.0) > before
    assert numbers.reward == 0.5
    assert numbers.tokens == sum(len(prompt) + len(response) for group in draws for prompt, response, _ in group)
    assert numbers.grad_norm > 0
    assert numbers.prox_kl == pytest.approx(0.0, abs=1e-5)


def test_groups_without_variance_change_nothing(model: PreTrainedModel) -> None:
    prompt, right = SORT_DIGITS.demonstration(random.Random(0))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = step_of(model).run(groups_of(model, [[(prompt, right, 1.0)] * 4]), 0, random.Random(0))
    assert numbers == StepNumbers(reward=1.0, tokens=4 * (len(prompt) + len(right)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_same_step_twice_gives_the_same_weights() -> None:
    results = []
    for _ in range(2):
        model = build_model(SORT_DIGITS, seed=3)
        step_of(model).run(groups_of(model, right_and_wrong(2)), 5, random.Random(9))
        results.append(model.lm_head.weight.detach())
    assert torch.equal(*results)


def test_the_learning_rate_ramps_up_over_the_first_steps(model: PreTrainedModel) -> None:
    settings = StepSettings()
    optimizer = make_optimizer(model, settings)
    step = TrainingStep(model, optimizer, settings)
    rates = []
    for number in (0, 4, 9, 50):
        step.run(groups_of(model, right_and_wrong(1)), number, random.Random(0))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-5, 5e-5, 1e-4, 1e-4])


def test_a_drifted_behaviour_policy_shows_in_the_numbers(model: PreTrainedModel) -> None:
    groups = groups_of(model, right_and_wrong(2))
    drifted = tuple(
        group.model_copy(
            update={
                "samples": tuple(
                    sample.model_copy(update={"logprobs": tuple(value + 0.1 for value in sample.logprobs)})
                    for sample in group.samples
                )
            }
        )
        for group in groups
    )
    assert step_of(model).run(drifted, 0, random.Random(0)).prox_kl == pytest.approx(0.1, abs=1e-5)


@pytest.mark.slow
def test_forty_steps_after_the_warm_start_raise_the_accuracy() -> None:
    model = build_model(SORT_DIGITS, seed=0)
    warm_start(model, SORT_DIGITS, 0, WarmupSettings())
    before = accuracy(model, SORT_DIGITS, 512, seed=777)
    step, rng = step_of(model), random.Random(0)
    generator = torch.Generator().manual_seed(0)
    rewards = []
    for number in range(40):
        problems = [SORT_DIGITS.prompt(number, index) for index in range(32)]
        prompts = [prompt for prompt, _ in problems for _ in range(8)]
        responses = sample(model, prompts, SORT_DIGITS.max_new_tokens, generator)
        draws = [
            [(prompt, tokens, reward(SORT_DIGITS, tokens, answer)) for tokens in responses[8 * i : 8 * i + 8]]
            for i, (prompt, answer) in enumerate(problems)
        ]
        rewards.append(step.run(groups_of(model, draws), number, rng).reward)
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + 0.03
    assert accuracy(model, SORT_DIGITS, 512, seed=777) > before + 0.05


def spoilt(group: Group, logprob: float) -> Group:
    """The first sample's first logprob becomes this; as if it had passed every check."""
    first = group.samples[0]
    first = first.model_copy(update={"logprobs": (logprob, *first.logprobs[1:])})
    return group.model_copy(update={"samples": (first, *group.samples[1:])})


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_a_minibatch_that_is_not_finite_is_skipped_and_the_others_are_trained(
    model: PreTrainedModel, bad: float
) -> None:
    before = model.lm_head.weight.detach().clone()
    first, *rest = groups_of(model, right_and_wrong(4))
    numbers = step_of(model).run((spoilt(first, bad), *rest), 0, random.Random(0))
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
    assert not torch.equal(model.lm_head.weight, before)
    assert all(map(math.isfinite, (numbers.loss, numbers.grad_norm, numbers.prox_kl, numbers.clip_fraction)))
    assert numbers.grad_norm > 0


def test_a_step_of_which_nothing_is_finite_leaves_the_weights_and_can_be_followed_by_a_good_one(
    model: PreTrainedModel,
) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    good = groups_of(model, right_and_wrong(1))
    settings = StepSettings(minibatches=1)
    step = TrainingStep(model, make_optimizer(model, settings), settings)
    numbers = step.run((spoilt(good[0], float("nan")),), 0, random.Random(0))
    assert (numbers.loss, numbers.grad_norm, numbers.prox_kl) == (0.0, 0.0, 0.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert step.run(good, 1, random.Random(0)).grad_norm > 0
