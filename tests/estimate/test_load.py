"""The estimator's passes against those that the trainer makes of drawn samples."""

import math
import random
from dataclasses import dataclass
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.packing import deal, layouts, split, width_of
from hexcloud.domain.workload import Workload
from hexcloud.estimate.load import Load, load_of


@dataclass(frozen=True)
class Drawn:
    length: int


def drawn(job: Workload, rng: random.Random) -> list[Drawn]:
    variance = math.log1p(job.response_cv**2)
    log_mean = math.log(job.response_tokens) - variance / 2
    lengths = (rng.lognormvariate(log_mean, math.sqrt(variance)) for _ in range(job.samples_per_step))
    return [Drawn(round(job.prompt_tokens + min(length, job.max_response_tokens))) for length in lengths]


def made(job: Workload, ranks: int, pass_tokens: int, rng: random.Random) -> Load:
    """What the trainer makes of a batch, all ranks together."""
    tokens, passes, parts = 0, 0, split(drawn(job, rng), job.minibatches)
    for part in parts:
        packed = [layouts(hand, pass_tokens) for hand in deal(part, ranks)]
        most = max(map(len, packed))
        passes += most
        for number in range(most):
            tokens += max(len(one[number]) * width_of(one[number]) for one in packed if number < len(one))
    return Load(tokens, passes, len(parts))


@pytest.mark.parametrize("ranks", [1, 8, 16, 32, 64])
@pytest.mark.parametrize("pass_tokens", [2048, 8192, 32768])
def test_a_plan_counts_the_passes_that_the_trainer_makes(workload: Workload, ranks: int, pass_tokens: int) -> None:
    rng = random.Random(0)
    steps = [made(workload, ranks, pass_tokens, rng) for _ in range(20)]
    load = load_of(workload, ranks, pass_tokens)
    assert load.tokens == pytest.approx(fmean(step.tokens for step in steps), rel=0.15)
    assert load.passes == pytest.approx(fmean(step.passes for step in steps), rel=0.25)
    assert load.updates == 4


@settings(deadline=None)
@given(
    samples=st.integers(1, 64),
    minibatches=st.integers(1, 8),
    ranks=st.integers(1, 80),
    pass_tokens=st.integers(64, 32768),
)
def test_no_rank_makes_fewer_tokens_than_its_share_or_fewer_passes_than_updates(
    workload: Workload, samples: int, minibatches: int, ranks: int, pass_tokens: int
) -> None:
    fields = {"samples_per_step": samples, "minibatches": minibatches, "group_size": 1, "response_cv": 0.0}
    job = workload.model_copy(update=fields)
    load = load_of(job, ranks, pass_tokens)
    assert load.tokens >= samples * job.tokens_per_sample / ranks
    assert load.passes >= load.updates == len(split(drawn(job, random.Random(0)), minibatches))


def test_equal_samples_are_counted_by_hand(workload: Workload) -> None:
    """64 samples of 2,048 tokens a minibatch: four for each of 16 ranks, in one pass of 8,192 tokens."""
    even = workload.model_copy(update={"response_cv": 0.0})
    assert load_of(even, 16, 8192) == Load(4 * 4 * 2048, 4, 4)
    assert load_of(even, 16, 8191) == Load(4 * 4 * 2048, 8, 4)
    assert load_of(even, 60, 8192) == Load(4 * 2 * 2048, 4, 4)  # four ranks have two, and the others wait
    assert load_of(even, 128, 8192) == Load(4 * 2048, 4, 4)  # half of the ranks have none
