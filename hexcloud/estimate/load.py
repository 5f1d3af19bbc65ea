"""What a gang's ranks go through in a step: a typical batch, dealt and packed as the trainer does it (domain/packing).

Lengths are quantiles of the workload's log-normal responses. All ranks make every pass together, so each takes as long
as the fullest one's; padding is computed like any token.
"""

import math
from functools import lru_cache
from itertools import zip_longest
from statistics import NormalDist, fmean
from typing import NamedTuple

from hexcloud.domain.packing import deal, layouts, width_of
from hexcloud.domain.workload import Workload


class Load(NamedTuple):
    """Of one step."""

    tokens: float
    """Of each pass's fullest rank, summed over passes."""
    passes: int
    """Micro-batches: forward and backward passes through all weights."""
    updates: int
    """Of the optimizer."""


class _Typical(NamedTuple):
    """A sample, or several."""

    length: int


class _Shape(NamedTuple):
    """Of the responses of a minibatch."""

    samples: int
    prompt_tokens: float
    response_tokens: float
    response_cv: float
    most_tokens: int


def load_of(workload: Workload, data_ranks: int, pass_tokens: int) -> Load:
    """Return what a step is for so many ranks with samples of their own, in passes of at most `pass_tokens`.

    Every minibatch counts as a full one.
    """
    updates = min(workload.minibatches, workload.samples_per_step)
    samples = math.ceil(workload.samples_per_step / updates)
    updates = math.ceil(workload.samples_per_step / samples)
    shape = _Shape(
        samples,
        workload.prompt_tokens,
        workload.response_tokens,
        workload.response_cv,
        workload.max_response_tokens,
    )
    tokens, passes = _minibatch(shape, data_ranks, pass_tokens)
    return Load(updates * tokens, updates * passes, updates)


@lru_cache(maxsize=4096)
def _minibatch(shape: _Shape, data_ranks: int, pass_tokens: int) -> tuple[float, int]:
    """Return tokens and number of a minibatch's passes."""
    found: list[int] = []
    for hand in _hands(shape, data_ranks):
        sizes = [len(rows) * width_of(rows) for rows in layouts(hand, pass_tokens)]
        found = [max(pair) for pair in zip_longest(found, sizes, fillvalue=0)]
    return float(sum(found)), len(found)


@lru_cache(maxsize=512)
def _hands(shape: _Shape, data_ranks: int) -> frozenset[tuple[_Typical, ...]]:
    """Return what ranks are dealt; those dealt alike count once."""
    return frozenset(tuple(hand) for hand in deal(_samples(shape), data_ranks) if hand)


@lru_cache(maxsize=64)
def _samples(shape: _Shape) -> tuple[_Typical, ...]:
    """Return a minibatch whose mean is the workload's: the middles of equally likely ranges of lengths."""
    spread = math.sqrt(math.log1p(shape.response_cv**2))
    middles = ((number + 0.5) / shape.samples for number in range(shape.samples))
    responses = [math.exp(spread * NormalDist().inv_cdf(middle)) for middle in middles]
    scale = shape.response_tokens / fmean(responses)
    return tuple(
        _Typical(round(shape.prompt_tokens + min(shape.most_tokens, scale * response))) for response in responses
    )
