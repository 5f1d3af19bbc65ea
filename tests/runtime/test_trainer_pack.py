import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Sample
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_model import pad, token_logprobs
from hexcloud.runtime.trainer_pack import LEAST_WIDTH, WIDEST_SHARED, Graded, deal, layouts, make_pack
from tests.runtime.training import small_model, state_of

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 120)), min_size=1, max_size=40)


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


@settings(deadline=None)
@given(lengths=LENGTHS, budget=st.integers(1, 2000))
def test_every_sample_is_in_one_pass_and_passes_keep_the_budget(lengths: list[tuple[int, int]], budget: int) -> None:
    samples = samples_of(lengths)
    passes = layouts(samples, budget)
    placed = [one.advantage for rows in passes for row in rows for one in row]
    assert sorted(placed) == sorted(one.advantage for one in samples)
    for rows in passes:
        width = max(sum(one.length for one in row) for row in rows)
        assert len(rows) * width <= budget or len(rows) == 1
        assert width <= max(LEAST_WIDTH, max(one.length for row in rows for one in row))


@settings(deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 5))
def test_ranks_are_dealt_alike(lengths: list[tuple[int, int]], ranks: int) -> None:
    samples = samples_of(lengths)
    hands = deal(samples, ranks)
    loads = [sum(one.length for one in hand) for hand in hands]
    assert sum(loads) == sum(one.length for one in samples)
    assert max(loads) - min(loads) <= max(one.length for one in samples)


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
