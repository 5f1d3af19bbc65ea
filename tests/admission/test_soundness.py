import math
from dataclasses import dataclass

import pytest

from hexcloud.admission.soundness import is_sound_beginning, is_sound_sample
from hexcloud.domain.lease import Lease
from hexcloud.domain.response import Response
from hexcloud.domain.sample import MAX_REWARD, Sample
from tests.admission.desk import MAX_NEW, VOCABULARY, Desk, sample_of, terms

BEGUN = Response((7, 8), (-0.1, -0.2), (0, 0))


@dataclass(frozen=True)
class Case:
    lease: Lease
    sample: Sample

    def is_believed(self, **lie: object) -> bool:
        """Is the sample, or the beginning that it could be, with this lie in it? Both must agree where both can."""
        told = self.sample.model_copy(update=lie)
        sound = is_sound_sample(told, self.lease, VOCABULARY, newest=1)
        if not set(lie) - {"tokens", "logprobs", "versions"}:
            made = Response(told.tokens, told.logprobs, told.versions)
            assert is_sound_beginning(made, self.lease, VOCABULARY, newest=1) is sound
        return sound


@pytest.fixture
def case() -> Case:
    """A lease that goes on from what another worker has begun."""
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, BEGUN, now_s=0.0)
    desk.admission.release(lease)
    (lease,) = desk.leases("b", 1)
    return Case(lease, sample_of(lease, versions=(0, 1)))


def test_what_was_made_under_a_lease_is_believed(case: Case) -> None:
    assert case.is_believed()
    assert case.is_believed(tokens=(7, 8, 0, VOCABULARY - 1))
    assert case.is_believed(reward=-MAX_REWARD)


@pytest.mark.parametrize("token", [-1, VOCABULARY, 10**6, 2**40])
def test_a_token_that_the_model_does_not_have_is_not(case: Case, token: int) -> None:
    assert not case.is_believed(tokens=(7, 8, token, 3))


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, 0.5, -1e5])
def test_a_logprob_that_is_none_is_not(case: Case, logprob: float) -> None:
    assert not case.is_believed(logprobs=(-0.1, -0.2, logprob, -0.5))


def test_a_response_longer_than_was_asked_for_is_not(case: Case) -> None:
    for length, is_believed in ((MAX_NEW, True), (MAX_NEW + 1, False)):
        more = length - len(BEGUN.tokens)
        lie = {
            "tokens": BEGUN.tokens + (3,) * more,
            "logprobs": BEGUN.logprobs + (-0.5,) * more,
            "versions": BEGUN.versions + (1,) * more,
        }
        assert case.is_believed(**lie) is is_believed


@pytest.mark.parametrize(
    "lie",
    [{"tokens": (7, 9, 7, 7)}, {"logprobs": (-0.1, -0.9, -0.5, -0.5)}, {"versions": (0, 1, 1, 1)}],
    ids=lambda lie: next(iter(lie)),
)
def test_a_response_that_does_not_go_on_from_what_was_begun_is_not(case: Case, lie: dict[str, object]) -> None:
    assert not case.is_believed(**lie)


@pytest.mark.parametrize("version", [-1, 2])
def test_tokens_of_weights_that_there_are_not_are_not(case: Case, version: int) -> None:
    assert not case.is_believed(versions=(0, 0, 0, version))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e200, 2 * MAX_REWARD])
def test_an_absurd_reward_is_not(case: Case, reward: float) -> None:
    assert not case.is_believed(reward=reward)


@pytest.mark.parametrize("lie", [{"index": 1}, {"epoch": 1}, {"prompt_ids": (9, 9)}, {"group": 77}], ids=str)
def test_another_leases_sample_is_not(case: Case, lie: dict[str, object]) -> None:
    assert not case.is_believed(**lie)


def test_a_beginning_may_be_empty_where_nothing_was_begun(case: Case) -> None:
    assert not is_sound_beginning(Response(), case.lease, VOCABULARY, newest=0)
    fresh = case.lease.model_copy(update={"prefix": (), "prefix_logprobs": (), "prefix_versions": ()})
    assert is_sound_beginning(Response(), fresh, VOCABULARY, newest=0)
    assert not is_sound_beginning(Response((7,), (), (0,)), fresh, VOCABULARY, newest=0), "not equally long"
