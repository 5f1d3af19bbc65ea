import random

import torch

from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.packing import WIDEST_SHARED, layouts
from hexcloud.domain.sample import Sample
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_model import pad, token_logprobs
from hexcloud.runtime.trainer_pack import Graded, make_pack
from tests.runtime.training import small_model, state_of


def graded(prompt: int, response: int, number: int = 0) -> Graded:
    rng = random.Random(f"{prompt}/{response}/{number}")
    sample = Sample(
        lease=LeaseId(f"{number}.0"),
        attempt=0,
        group=GroupId(number),
        index=0,
        epoch=0,
        prompt_ids=tuple(rng.randrange(3, 21) for _ in range(prompt)),
        tokens=tuple(rng.randrange(2, 21) for _ in range(response)),
        logprobs=tuple(-rng.random() for _ in range(response)),
        versions=(4,) * response,
        reward=1.0,
    )
    return Graded(sample, advantage=float(number))


def samples_of(lengths: list[tuple[int, int]]) -> list[Graded]:
    return [graded(*pair, number) for number, pair in enumerate(lengths)]


def test_packed_samples_get_the_logprobs_that_they_get_alone() -> None:
    model = small_model()
    samples = samples_of([(5, 9), (8, 8), (3, 4), (9, 1), (2, 30), (20, 40)])
    policy = state_of(model, TrainingSpec()).policy
    (rows,) = layouts(samples, 8192)
    pack = make_pack(rows, version=5)
    assert pack.mask is not None and any(len(row) > 1 for row in rows)
    with torch.no_grad():
        found, entropy = policy(pack)
    wanted = []
    for one in (one for row in rows for one in row):
        with torch.no_grad():
            whole = token_logprobs(model, pad([one.sample.prompt_ids + one.sample.tokens]))[0]
        wanted.append(whole[len(one.sample.prompt_ids) - 1 :])
    torch.testing.assert_close(found, torch.cat(wanted), rtol=1e-5, atol=1e-6)
    assert (entropy > 0).all()
    assert set(pack.tokens.age.tolist()) == {1.0}
    flat = [value for row in rows for one in row for value in one.sample.logprobs]
    torch.testing.assert_close(pack.tokens.behave, torch.tensor(flat))


def test_long_samples_stay_alone_and_need_no_mask() -> None:
    samples = samples_of([(1, WIDEST_SHARED + 10), (1, 10)])
    first, second = layouts(samples, 100_000)
    assert [len(row) for row in first] == [1] and make_pack(first, 5).mask is None
    assert len(second) == 1


def test_a_pass_without_samples_moves_nothing() -> None:
    state = state_of(small_model(), TrainingSpec())
    logprobs, entropy = state.policy(make_pack([], version=0))
    assert logprobs.shape == entropy.shape == (0,)
    logprobs.sum().backward()
    assert all(not weight.grad.any() for weight in state.policy.parameters() if weight.grad is not None)
