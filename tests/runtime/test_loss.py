import math
import statistics
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hexcloud.domain.training import LossKind, TrainingSpec
from hexcloud.runtime.loss import TALLIES, Loss, Tokens, group_advantages, policy_loss

SETTINGS = TrainingSpec()
COUNT = 35


def random_tokens(seed: int, drift: float = 0.5) -> tuple[torch.Tensor, Tokens]:
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn(COUNT, generator=generator, dtype=torch.float64) * drift

    behave = -torch.rand(COUNT, generator=generator, dtype=torch.float64) * 3
    prox = behave + noise()
    logprobs = (prox + noise()).requires_grad_()
    age = torch.randint(0, 4, (COUNT,), generator=generator).double()
    return logprobs, Tokens(behave=behave, prox=prox, advantages=noise() * 2, age=age, reference=behave + noise())


def loss_of(logprobs: torch.Tensor, tokens: Tokens, settings: TrainingSpec = SETTINGS) -> Loss:
    return policy_loss(logprobs, torch.zeros_like(logprobs), tokens, settings)


def told(loss: Loss) -> dict[str, float]:
    return dict(zip(TALLIES, (loss.tallies / COUNT).tolist(), strict=True))


def objective(theta: float, anchor: float, weight: float, advantage: float) -> float:
    """One token, straight from the papers."""
    if weight > SETTINGS.importance_cap:
        return 0.0
    ratio = math.exp(theta - anchor)
    clipped = min(max(ratio, 1 - SETTINGS.clip), 1 + SETTINGS.clip)
    return weight * min(ratio * advantage, clipped * advantage)


def anchor_and_weight(kind: LossKind, theta: float, prox: float, behave: float, age: float) -> tuple[float, float]:
    if kind is LossKind.NAIVE:
        return behave, 1.0
    if kind is LossKind.UNCORRECTED:
        return prox, 1.0
    if kind is LossKind.A3PO:  # version v, made by b = v - age; theta is on its way to v + 1
        prox = behave + age / (age + 1) * (theta - behave)
    return prox, math.exp(prox - behave)


@pytest.mark.parametrize("kind", LossKind)
@pytest.mark.parametrize("drift", [0.1, 1.5])
def test_the_loss_is_the_formula_summed_over_tokens(kind: LossKind, drift: float) -> None:
    logprobs, tokens = random_tokens(1, drift)
    assert tokens.prox is not None and tokens.reference is not None
    rows = zip(
        *(row.tolist() for row in (logprobs, tokens.prox, tokens.behave, tokens.age, tokens.advantages)), strict=True
    )
    total = 0.0
    for theta, prox, behave, age, advantage in rows:
        total += objective(theta, *anchor_and_weight(kind, theta, prox, behave, age), advantage)
    settings = SETTINGS.model_copy(update={"loss": kind})
    assert float(loss_of(logprobs, tokens, settings).value.detach()) == pytest.approx(-total)


@pytest.mark.parametrize("kind", [LossKind.DECOUPLED, LossKind.NAIVE, LossKind.UNCORRECTED])
def test_the_gradient_agrees_with_finite_differences(kind: LossKind) -> None:
    logprobs, tokens = random_tokens(2)
    settings = SETTINGS.model_copy(update={"loss": kind, "kl_weight": 0.3})
    assert torch.autograd.gradcheck(lambda x: loss_of(x, tokens, settings).value, (logprobs,), eps=1e-7)


def test_a3po_holds_its_anchor_still_in_the_gradient() -> None:
    logprobs, tokens = random_tokens(2, drift=0.05)
    settings = SETTINGS.model_copy(update={"loss": LossKind.A3PO})
    anchor = tokens.behave + tokens.age / (tokens.age + 1) * (logprobs.detach() - tokens.behave)
    (ours,) = torch.autograd.grad(loss_of(logprobs, tokens, settings).value, logprobs)
    (wanted,) = torch.autograd.grad(loss_of(logprobs, replace(tokens, prox=anchor)).value, logprobs)
    assert torch.allclose(ours, wanted)


def test_fresh_tokens_make_all_corrected_kinds_naive_ppo() -> None:
    logprobs, tokens = random_tokens(2)
    fresh = replace(tokens, prox=tokens.behave, age=torch.zeros(COUNT))
    values = [
        float(loss_of(logprobs, fresh, SETTINGS.model_copy(update={"loss": kind})).value.detach()) for kind in LossKind
    ]
    assert values == pytest.approx([values[0]] * len(values))


def test_on_policy_the_gradient_is_reinforce() -> None:
    _, tokens = random_tokens(3)
    assert tokens.prox is not None
    logprobs = tokens.prox.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(logprobs, replace(tokens, behave=tokens.prox)).value, logprobs)
    assert torch.allclose(gradient, -tokens.advantages)


def test_without_prox_the_policy_itself_is_the_anchor() -> None:
    logprobs, tokens = random_tokens(3)
    ours = loss_of(logprobs, replace(tokens, prox=None))
    theirs = loss_of(logprobs, replace(tokens, prox=logprobs.detach()))
    (a,), (b,) = (torch.autograd.grad(loss.value, logprobs) for loss in (ours, theirs))
    assert torch.equal(a, b)


def test_tokens_over_the_cap_are_dropped_not_capped() -> None:
    prox = torch.tensor([-1.0, -1.0])
    logprobs = prox.clone().requires_grad_()
    tokens = Tokens(behave=torch.tensor([-12.0, -1.0]), prox=prox, advantages=torch.ones(2), age=torch.zeros(2))
    loss = loss_of(logprobs, tokens)
    (gradient,) = torch.autograd.grad(loss.value, logprobs)
    assert gradient.tolist() == [0.0, -1.0]
    named = dict(zip(TALLIES, loss.tallies.tolist(), strict=True))
    assert (named["importance"], named["importance_dropped"]) == (1.0, 1.0)


@pytest.mark.parametrize("kind", LossKind)
@pytest.mark.parametrize("has_prox", [True, False])
@pytest.mark.parametrize("behave", [-50.0, -95.0, -200.0, -1e4, -3e38])
def test_value_and_gradient_are_finite_for_any_finite_logprob(kind: LossKind, has_prox: bool, behave: float) -> None:
    logprobs = torch.tensor([-1.0, -2.0, behave, -1.0], requires_grad=True)
    tokens = Tokens(
        behave=torch.tensor([behave, behave, -1.0, -1.0]),
        advantages=torch.tensor([1.0, -1.0, -1.0, 1.0]),
        age=torch.tensor([0.0, 1.0, 1.0, 3.0]),
        prox=torch.tensor([-1.0, behave, -1.0, behave]) if has_prox else None,
        reference=torch.full((4,), -1.0),
    )
    loss = loss_of(logprobs, tokens, SETTINGS.model_copy(update={"loss": kind, "kl_weight": 0.1}))
    (gradient,) = torch.autograd.grad(loss.value, logprobs)
    assert all(bool(found.isfinite().all()) for found in (loss.value, gradient, loss.tallies))


@pytest.mark.parametrize("kind", [LossKind.DECOUPLED, LossKind.A3PO])
def test_a_token_whose_weight_would_be_infinite_is_dropped_and_its_sisters_are_trained(kind: LossKind) -> None:
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    tokens = Tokens(behave=torch.tensor([-200.0, -1.0]), advantages=torch.ones(2), age=torch.ones(2))
    loss = loss_of(logprobs, tokens, SETTINGS.model_copy(update={"loss": kind}))
    (gradient,) = torch.autograd.grad(loss.value, logprobs)
    assert gradient.tolist() == [0.0, -1.0]
    assert dict(zip(TALLIES, loss.tallies.tolist(), strict=True))["importance_dropped"] == 1.0


def test_the_kl_estimate_is_zero_only_at_the_reference() -> None:
    logprobs, tokens = random_tokens(4)
    weighted = SETTINGS.model_copy(update={"kl_weight": 1.0})
    assert told(loss_of(logprobs, tokens, weighted))["kl"] > 0
    assert told(loss_of(logprobs, replace(tokens, reference=logprobs.detach()), weighted))["kl"] == 0
    assert told(loss_of(logprobs, replace(tokens, reference=None), weighted))["kl"] == 0


def test_diagnostics_count_stopped_tokens_and_drift() -> None:
    prox = torch.full((4,), -2.0)
    logprobs = prox + torch.tensor([0.5, 0.5, -0.5, 0.0])
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0])
    tokens = Tokens(behave=prox + 0.25, prox=prox, advantages=advantages, age=torch.tensor([0.0, 1.0, 2.0, 1.0]))
    named = dict(zip(TALLIES, (loss_of(logprobs, tokens).tallies / 4).tolist(), strict=True))
    assert named["clip_fraction"] == 0.5  # up with a gain, and down with a loss; up with a loss is not stopped
    assert named["prox_kl"] == pytest.approx(0.25)
    assert named["importance"] == pytest.approx(math.exp(-0.25))
    assert named["token_age"] == 1.0


def test_advantages_are_standard_scores_within_the_group() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    mean, std = statistics.mean(rewards), statistics.stdev(rewards)
    wanted = [(reward - mean) / (std + 1e-4) for reward in rewards]
    assert group_advantages(rewards) == pytest.approx(wanted)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_group_without_variance_has_no_advantage(reward: float) -> None:
    assert group_advantages([reward] * 8) == [0.0] * 8
    assert group_advantages([reward]) == [0.0], "one sample has nobody to be compared with"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
@example([1e200, 0.0])
@example([1.7e308, -1.7e308])
@example([1.7e308] * 4)
def test_advantages_are_finite_for_any_finite_rewards(rewards: list[float]) -> None:
    advantages = group_advantages(rewards)
    assert all(map(math.isfinite, advantages))
    assert abs(sum(advantages)) < 1e-6


def test_advantages_of_large_rewards_are_those_of_small_ones() -> None:
    assert group_advantages([3e5, 1e5, 1e5, 0.0]) == pytest.approx(group_advantages([3e200, 1e200, 1e200, 0.0]))
