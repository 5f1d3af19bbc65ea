import math
import statistics

import pytest
import torch

from hexcloud.runtime.loss import LossSettings, PolicyBatch, group_advantages, policy_loss

SETTINGS = LossSettings()
SHAPE = (5, 7)


def random_batch(seed: int, drift: float = 0.5) -> tuple[torch.Tensor, PolicyBatch]:
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn(SHAPE, generator=generator, dtype=torch.float64) * drift

    behave = -torch.rand(SHAPE, generator=generator, dtype=torch.float64) * 3
    prox = behave + noise()
    logprobs = (prox + noise()).requires_grad_()
    mask = (torch.rand(SHAPE, generator=generator) < 0.7).double()
    return logprobs, PolicyBatch(behave=behave, prox=prox, advantages=noise() * 2, mask=mask)


def objective(theta: float, prox: float, behave: float, advantage: float) -> float:
    """One token, straight from the paper."""
    weight, ratio = math.exp(prox - behave), math.exp(theta - prox)
    if weight > SETTINGS.behave_cap:
        return 0.0
    clipped = min(max(ratio, 1 - SETTINGS.clip), 1 + SETTINGS.clip)
    return weight * min(ratio * advantage, clipped * advantage)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("drift", [0.1, 1.5])
def test_the_loss_is_the_formula_averaged_over_response_tokens(seed: int, drift: float) -> None:
    logprobs, batch = random_batch(seed, drift)
    total, count = 0.0, 0
    for row in range(SHAPE[0]):
        for token in range(SHAPE[1]):
            if batch.mask[row, token]:
                parts = (logprobs.detach(), batch.prox, batch.behave, batch.advantages)
                total += objective(*(float(part[row, token]) for part in parts))
                count += 1
    assert float(policy_loss(logprobs, batch, SETTINGS).value.detach()) == pytest.approx(-total / count)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_agrees_with_finite_differences(seed: int) -> None:
    logprobs, batch = random_batch(seed)
    assert torch.autograd.gradcheck(lambda x: policy_loss(x, batch, SETTINGS).value, (logprobs,), eps=1e-7)


def test_prompt_and_padding_get_no_gradient() -> None:
    logprobs, batch = random_batch(1)
    (gradient,) = torch.autograd.grad(policy_loss(logprobs, batch, SETTINGS).value, logprobs)
    assert torch.all(gradient[batch.mask == 0] == 0)


def test_without_drift_between_prox_and_behave_it_is_naive_ppo() -> None:
    logprobs, batch = random_batch(2)
    fresh = PolicyBatch(batch.prox, batch.prox, batch.advantages, batch.mask)
    ratio = torch.exp(logprobs - batch.prox)
    surrogate = torch.minimum(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages)
    naive = -(surrogate * batch.mask).sum() / batch.mask.sum()
    loss = policy_loss(logprobs, fresh, SETTINGS)
    assert torch.allclose(loss.value, naive)
    (ours,), (theirs,) = (torch.autograd.grad(value, logprobs) for value in (loss.value, naive))
    assert torch.allclose(ours, theirs)


def test_on_policy_the_gradient_is_reinforce() -> None:
    _, batch = random_batch(3)
    logprobs = batch.prox.clone().requires_grad_()
    fresh = PolicyBatch(batch.prox, batch.prox, batch.advantages, batch.mask)
    (gradient,) = torch.autograd.grad(policy_loss(logprobs, fresh, SETTINGS).value, logprobs)
    assert torch.allclose(gradient, -batch.advantages * batch.mask / batch.mask.sum())


def test_tokens_over_the_cap_are_dropped_not_capped() -> None:
    behave = torch.tensor([[-12.0, -1.0]])
    prox = torch.tensor([[-1.0, -1.0]])
    logprobs = prox.clone().requires_grad_()
    batch = PolicyBatch(behave, prox, torch.ones(1, 2), torch.ones(1, 2))
    (gradient,) = torch.autograd.grad(policy_loss(logprobs, batch, SETTINGS).value, logprobs)
    assert gradient.tolist() == [[0.0, -0.5]]


def test_diagnostics_count_stopped_tokens_and_drift() -> None:
    prox = torch.full((1, 4), -2.0)
    logprobs = prox + torch.tensor([[0.5, 0.5, -0.5, 0.0]])
    advantages = torch.tensor([[1.0, -1.0, -1.0, 1.0]])
    loss = policy_loss(logprobs, PolicyBatch(prox + 0.25, prox, advantages, torch.ones(1, 4)), SETTINGS)
    assert loss.clip_fraction == 0.5  # up with a gain, and down with a loss; up with a loss is not stopped
    assert loss.prox_kl == pytest.approx(0.25)


def test_advantages_are_standard_scores_within_the_group() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    mean, std = statistics.mean(rewards), statistics.stdev(rewards)
    wanted = [(reward - mean) / (std + 1e-4) for reward in rewards]
    assert group_advantages(torch.tensor(rewards)).tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_group_without_variance_has_no_advantage(reward: float) -> None:
    assert group_advantages(torch.full((8,), reward)).tolist() == [0.0] * 8
