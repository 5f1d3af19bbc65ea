"""A group is as old as its oldest token."""

import pytest
from pydantic import ValidationError

from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample


def sample(versions: tuple[int, ...]) -> Sample:
    return Sample(
        lease=LeaseId("0.0"),
        attempt=0,
        group=GroupId(0),
        index=0,
        epoch=0,
        prompt_ids=(1,),
        tokens=tuple(range(len(versions))),
        logprobs=tuple(-1.0 for _ in versions),
        versions=versions,
        reward=0.0,
    )


def test_oldest_token_counts() -> None:
    assert sample((5, 3, 6)).oldest_version == 3
    assert Group(id=GroupId(0), samples=(sample((5, 3)), sample((2, 9)))).oldest_version == 2


def test_an_empty_or_ragged_sample_cannot_be_built() -> None:
    with pytest.raises(ValidationError):
        sample(())
    with pytest.raises(ValidationError):
        Sample(**{**sample((1, 1)).model_dump(), "logprobs": (-1.0,)})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_no_sample(bad: float) -> None:
    for update in ({"logprobs": (-1.0, bad)}, {"reward": bad}):
        with pytest.raises(ValidationError):
            Sample(**{**sample((1, 1)).model_dump(), **update})
