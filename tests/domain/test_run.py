import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hexcloud.domain.run import MAX_NAME, RunSpec
from hexcloud.domain.training import Precision, TrainingSpec


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-", "", "two words", "night\n", "x" * (MAX_NAME + 1)])
def test_a_name_that_is_no_folders_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="a name is at most 40 letters"):
        RunSpec(name=name)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", fullmatch=True))
def test_any_other_name_is_kept(name: str) -> None:
    assert RunSpec(name=name).name == name


@pytest.mark.parametrize(("target", "kept"), [(20000, "20000"), (1e-3, "0.001"), ("5 steps/min", "5 steps/min")])
def test_a_target_may_be_a_number(target: object, kept: str) -> None:
    assert RunSpec.model_validate({"target": target}).target == kept


def test_a_target_is_not_yes_or_no() -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"target": True})


def test_real_machines_have_no_trace_unless_one_is_asked_for() -> None:
    assert RunSpec().trace == "demo"
    assert RunSpec(provider="skypilot").trace is None
    assert RunSpec.model_validate({"provider": "skypilot", "trace": "calm"}).trace == "calm", (
        "so that it can be refused"
    )
    stored = RunSpec(provider="skypilot").model_dump_json()
    assert RunSpec.model_validate_json(stored).trace is None


def test_real_machines_train_in_bf16_unless_told_otherwise() -> None:
    assert RunSpec().precision is Precision.FP32
    assert RunSpec(provider="skypilot").precision is Precision.BF16
    assert RunSpec(provider="skypilot", training=TrainingSpec(precision="fp32")).precision is Precision.FP32
    assert RunSpec(training=TrainingSpec(precision="bf16")).precision is Precision.BF16


@pytest.mark.parametrize("region", ["us-east-1", "aws/", "aws/us-east-1/a", "aws us/east"])
def test_a_store_for_weights_is_named_by_cloud_and_region(region: str) -> None:
    with pytest.raises(ValidationError, match="no CLOUD/REGION"):
        RunSpec(weights_stores={region: "s3://bucket/x"})
    assert RunSpec(weights_stores={"aws/us-east-1": "s3://bucket/x"}).weights_stores


@pytest.mark.parametrize("name", ["TOKEN=hunter2", "two words", "", "1ST"])
def test_variables_are_named_and_never_given(name: str) -> None:
    with pytest.raises(ValidationError, match="only names of environment variables"):
        RunSpec(pass_env=(name,))
    assert RunSpec(pass_env=("AWS_ENDPOINT_URL", "_x1")).pass_env == ("AWS_ENDPOINT_URL", "_x1")
