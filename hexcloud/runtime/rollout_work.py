"""What becomes of a lease on a rollout node: a request to the engine, then a sample or a partial. Pure."""

from collections.abc import Iterator
from typing import TypeVar

from hexcloud.domain.generation import FinishKind, Generation, GenerationRequest
from hexcloud.domain.lease import Lease
from hexcloud.domain.messages import Partial
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Sample

One = TypeVar("One")


def request_id(lease: Lease) -> str:
    """Name a lease's attempt to the engine."""
    return f"{lease.id}.{lease.attempt}"


COMMIT_TOKENS = 1024
"""A longer response is generated in parts, and what there is of it is committed after each: no loss costs more."""


def request(lease: Lease, eos_ids: tuple[int, ...]) -> GenerationRequest:
    """Return what to ask the engine for, up to the next commit; tokens committed before are continued."""
    return GenerationRequest(
        rid=request_id(lease),
        input_ids=lease.prompt_ids + lease.prefix,
        max_new_tokens=_asked(lease),
        temperature=lease.temperature,
        stop_token_ids=eos_ids,
    )


def sample(lease: Lease, generation: Generation, reward: float) -> Sample:
    """Return the finished sample. Raises ValueError when the generation has no tokens."""
    tokens = lease.prefix + generation.tokens
    return Sample(
        lease=lease.id,
        attempt=lease.attempt,
        group=lease.group,
        index=lease.index,
        epoch=lease.epoch,
        prompt_ids=lease.prompt_ids,
        tokens=tokens,
        logprobs=lease.prefix_logprobs + generation.logprobs,
        versions=lease.prefix_versions + generation.versions,
        reward=reward,
    )


def is_whole(lease: Lease, generation: Generation) -> bool:
    """Is this the end of a sample that can be trained on, and not of a part of it?"""
    if generation.finish is FinishKind.ABORT or not is_usable(generation):
        return False
    # Fewer tokens than were asked for: the engine is at the end of its context, and asking on would never end.
    is_part = generation.finish is FinishKind.LENGTH and len(generation.tokens) >= _asked(lease)
    return not is_part or len(lease.prefix) + len(generation.tokens) >= lease.max_new_tokens


def _asked(lease: Lease) -> int:
    return max(1, min(COMMIT_TOKENS, lease.max_new_tokens - len(lease.prefix)))


def grown(lease: Lease, generation: Generation) -> Lease:
    """Return a lease with the tokens that were made of it."""
    return lease.model_copy(
        update={
            "prefix": lease.prefix + generation.tokens,
            "prefix_logprobs": lease.prefix_logprobs + generation.logprobs,
            "prefix_versions": lease.prefix_versions + generation.versions,
        }
    )


def is_usable(generation: Generation) -> bool:
    """Can it be trained on? A logprob that is not finite (a zero chance, a broken engine) would spoil the weights.

    The coordinator takes no other, and would think the worker broken.
    """
    return Response(generation.tokens, generation.logprobs, generation.versions).has_sound_logprobs


def partial(lease: Lease, generation: Generation | None = None, start: int = 0) -> Partial:
    """Return the tokens there are of an unfinished sample, from its `start` on.

    They are those it came with or that were committed, and those of an aborted generation.
    """
    return Partial(
        lease=lease.id,
        attempt=lease.attempt,
        start=start,
        tokens=(lease.prefix + (generation.tokens if generation else ()))[start:],
        logprobs=(lease.prefix_logprobs + (generation.logprobs if generation else ()))[start:],
        versions=(lease.prefix_versions + (generation.versions if generation else ()))[start:],
    )


def chunks(some: tuple[One, ...], size: int) -> Iterator[tuple[One, ...]]:
    """Split leases, or what names them, in order into batches of at most `size`."""
    for start in range(0, len(some), size):
        yield some[start : start + size]
