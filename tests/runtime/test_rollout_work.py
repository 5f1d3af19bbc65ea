import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.generation import FinishKind, Generation
from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.runtime.rollout_work import (
    COMMIT_TOKENS,
    chunks,
    is_usable,
    is_whole,
    partial,
    request,
    request_id,
    sample,
)
from hexcloud.runtime.tasks import BOS_ID, EOS_ID, SORT_DIGITS

PROMPT = (BOS_ID, *SORT_DIGITS.encode("31>"))
RIGHT = (*SORT_DIGITS.encode("13"), EOS_ID)


def lease(prefix: tuple[int, ...] = ()) -> Lease:
    return Lease(
        id=LeaseId("5.2"),
        group=GroupId(5),
        index=2,
        worker="n",
        attempt=1,
        deadline_s=0.0,
        epoch=3,
        version=7,
        prompt_ids=PROMPT,
        max_new_tokens=10,
        prefix=prefix,
        prefix_logprobs=(-0.5,) * len(prefix),
        prefix_versions=(6,) * len(prefix),
        answer="13",
    )


def generation(tokens: tuple[int, ...], finish: FinishKind = FinishKind.STOP) -> Generation:
    count = len(tokens)
    return Generation(rid="5.2.1", tokens=tokens, logprobs=(-1.0,) * count, versions=(7,) * count, finish=finish)


def test_a_request_names_the_attempt_and_ends_at_eos() -> None:
    asked = request(lease(), (EOS_ID,))
    assert asked.rid == request_id(lease()) == "5.2.1"
    assert (asked.input_ids, asked.max_new_tokens, asked.stop_token_ids) == (PROMPT, 10, (EOS_ID,))


def test_a_parked_sample_is_continued_with_what_is_left_of_its_length() -> None:
    asked = request(lease(prefix=RIGHT[:1]), (EOS_ID,))
    assert (asked.input_ids, asked.max_new_tokens) == ((*PROMPT, RIGHT[0]), 9)


def test_a_sample_has_its_reward_and_keeps_the_version_of_every_token() -> None:
    done = sample(lease(prefix=RIGHT[:1]), generation(RIGHT[1:]), 1.0)
    assert done.reward == 1.0
    assert (done.tokens, done.versions, done.logprobs) == (RIGHT, (6, 7, 7), (-0.5, -1.0, -1.0))
    assert (done.epoch, done.attempt, done.index) == (3, 1, 2)


def test_a_generation_without_tokens_is_no_sample() -> None:
    with pytest.raises(ValueError, match="not empty"):
        sample(lease(), generation(()), 0.0)


def test_a_partial_holds_committed_and_new_tokens() -> None:
    given_back = partial(lease(prefix=RIGHT[:1]), generation(RIGHT[1:2], FinishKind.ABORT))
    assert (given_back.tokens, given_back.versions) == (RIGHT[:2], (6, 7))
    assert partial(lease(prefix=RIGHT[:1])).tokens == RIGHT[:1]


@given(count=st.integers(0, 40), size=st.integers(1, 9))
def test_chunks_keep_every_lease_in_order(count: int, size: int) -> None:
    leases = tuple(lease().model_copy(update={"index": i}) for i in range(count))
    split = list(chunks(leases, size))
    assert [one for chunk in split for one in chunk] == list(leases)
    assert all(0 < len(chunk) <= size for chunk in split)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), 0.7, -3.4028235e38])
def test_a_generation_with_a_logprob_that_no_token_can_have_is_of_no_use(bad: float) -> None:
    good = generation(RIGHT)
    assert is_usable(good)
    assert not is_usable(good.model_copy(update={"logprobs": (*good.logprobs[1:], bad)}))


@pytest.mark.parametrize(
    ("made", "finish", "whole"),
    [
        (COMMIT_TOKENS, FinishKind.LENGTH, False),
        (COMMIT_TOKENS, FinishKind.STOP, True),
        (COMMIT_TOKENS, FinishKind.ABORT, False),
        (COMMIT_TOKENS - 2, FinishKind.LENGTH, True),  # the engine's context ends before the sample's length
    ],
)
def test_a_part_is_not_taken_for_a_whole_sample(made: int, finish: FinishKind, whole: bool) -> None:
    long = lease().model_copy(update={"max_new_tokens": 3 * COMMIT_TOKENS})
    assert is_whole(long, generation((RIGHT[0],) * made, finish)) is whole
