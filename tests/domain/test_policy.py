import pytest

from hexcloud.domain.policy import Objective, Policy


def test_the_least_throughput_is_the_target() -> None:
    assert Policy(target_samples_per_s=7.0).least_samples_per_s == 7.0
    assert Policy().least_samples_per_s is None


def test_a_deadline_asks_for_the_samples_in_time() -> None:
    run = Policy(objective=Objective.BUDGET_RUN, run_samples=36_000, deadline_h=2.0)
    assert run.least_samples_per_s == pytest.approx(5.0)
    assert run.model_copy(update={"deadline_h": None}).least_samples_per_s is None


def test_a_deadline_is_of_no_concern_to_other_objectives() -> None:
    policy = Policy(run_samples=36_000, deadline_h=2.0, target_samples_per_s=1.0)
    assert policy.least_samples_per_s == 1.0
