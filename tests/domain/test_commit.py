import pytest

from hexcloud.domain.commit import Partial
from hexcloud.domain.lease import LeaseId
from hexcloud.domain.response import Response


def test_a_partial_is_of_tokens_from_its_start_on() -> None:
    part = Partial(lease=LeaseId("1.0"), attempt=2, start=3, tokens=(7,), logprobs=(-0.5,), versions=(1,))
    assert part.made == Response((7,), (-0.5,), (1,))


def test_nothing_starts_before_the_response() -> None:
    with pytest.raises(ValueError, match="start"):
        Partial(lease=LeaseId("1.0"), attempt=0, start=-1, tokens=(), logprobs=(), versions=())
