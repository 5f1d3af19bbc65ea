"""The RL job's arithmetic."""

import pytest
from pydantic import ValidationError

from hexcloud.domain.workload import Workload


def test_mean_context_of_fixed_length_responses_is_prompt_plus_half(workload: Workload) -> None:
    fixed = workload.model_copy(update={"response_cv": 0.0})
    assert fixed.mean_context == pytest.approx(500 + 750)


def test_spread_of_lengths_raises_the_mean_context(workload: Workload) -> None:
    """Long samples live longer, so a random decode step sees them more often."""
    spread = workload.model_copy(update={"response_cv": 1.0})
    assert spread.mean_context == pytest.approx(500 + 1500)


@pytest.mark.parametrize(("asked", "share"), [(True, 0.75), (False, 0.0)])
def test_a_job_that_an_older_version_stored_is_read(workload: Workload, asked: bool, share: float) -> None:
    body = workload.model_dump(mode="json")
    del body["prox_share"]
    assert Workload.model_validate({**body, "recompute_prox": asked}).prox_share == share


def test_a_step_is_whole_groups(workload: Workload) -> None:
    with pytest.raises(ValidationError, match="not a multiple of group_size"):
        Workload(model=workload.model, samples_per_step=100, group_size=8)


def test_mean_response_fits_the_longest(workload: Workload) -> None:
    with pytest.raises(ValidationError, match="max_response_tokens"):
        Workload(model=workload.model, response_tokens=9000, max_response_tokens=8192)
