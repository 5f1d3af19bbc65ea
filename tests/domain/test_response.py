import math

import pytest

from hexcloud.domain.response import LEAST_LOGPROB, MOST_LOGPROB, Response


def response(*tokens: int, logprob: float = -0.5) -> Response:
    return Response(tokens, (logprob,) * len(tokens), (0,) * len(tokens))


def test_a_response_is_even_when_everything_is_known_of_every_token() -> None:
    assert Response().is_even and response(1, 2).is_even
    assert not response(1, 2)._replace(versions=(0,)).is_even


def test_ids_are_rows_of_the_model() -> None:
    assert Response().has_ids_below(1)
    assert response(0, 8).has_ids_below(9)
    assert not response(0, 9).has_ids_below(9)
    assert not response(3, -1).has_ids_below(9)
    assert not response(2**40).has_ids_below(9)


@pytest.mark.parametrize("logprob", [0.0, -0.0, 1e-6, -120.0, -1e-45])
def test_a_logprob_that_an_engine_may_give_is_sound(logprob: float) -> None:
    assert response(1, 2, logprob=logprob).has_sound_logprobs


@pytest.mark.parametrize(
    "logprob", [0.1, math.nan, math.inf, -math.inf, LEAST_LOGPROB, MOST_LOGPROB, -3e38, -1e300, 1e300]
)
def test_a_logprob_of_no_token_that_was_sampled_is_not(logprob: float) -> None:
    made = response(1, 2)._replace(logprobs=(-0.5, logprob))
    assert not made.has_sound_logprobs


def test_a_response_continues_its_own_beginning_and_no_other() -> None:
    made = Response((1, 2), (-0.1, -0.2), (0, 1))
    for length in range(3):
        assert made.continues(Response(made.tokens[:length], made.logprobs[:length], made.versions[:length]))
    assert made.continues(Response((1,), (-0.10000000149011612,), (0,))), "as f32 they are the same"
    for other in (
        Response((2,), (-0.1,), (0,)),
        Response((1,), (-0.3,), (0,)),
        Response((1,), (-0.1,), (1,)),
        Response((1, 2, 3), (-0.1, -0.2, -0.3), (0, 1, 1)),
    ):
        assert not made.continues(other)
