"""Preflight of an AWS account against a moto server: credentials, permissions, quota; and nothing is rented."""

from typing import Any

import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.clouds.aws_checks import AwsCheck, aws_checks

QUICK = Patience(connect_s=2, read_s=10, attempts=1, region_s=60)
P_ON_DEMAND = "aws/us-east-1/L-417A185B"


def failed(checks: list[AwsCheck]) -> dict[str, str]:
    return {name: found for name, ok, found in checks if not ok}


def test_an_account_that_may_and_can_passes_and_rents_nothing(moto: Any) -> None:
    checks = aws_checks(("us-east-1",), {P_ON_DEMAND: 384}, types={"us-east-1": "p5.48xlarge"}, patience=QUICK)
    assert failed(checks) == {}
    assert [name for name, _, _ in checks] == [
        "aws credentials",
        "aws us-east-1 RunInstances",
        "aws us-east-1 DescribeInstances",
        "aws us-east-1 TerminateInstances",
        f"quota {P_ON_DEMAND}",
    ]
    assert "p5.48xlarge" in checks[1][2]
    assert [call for call in moto.calls() if "launch" in call] == []


def test_a_need_over_the_limit_fails_with_both_numbers_and_the_mend(moto: Any) -> None:
    found = failed(aws_checks((), {P_ON_DEMAND: 385}, patience=QUICK))
    assert list(found) == [f"quota {P_ON_DEMAND}"]
    assert "385 vCPUs needed, 384 left of 384" in found[f"quota {P_ON_DEMAND}"]
    assert "Service Quotas" in found[f"quota {P_ON_DEMAND}"]


def test_a_limit_that_aws_does_not_list_fails(moto: Any) -> None:
    assert "no limit L-C4BD4855" in failed(aws_checks((), {"aws/us-east-1/L-C4BD4855": 1}, patience=QUICK)).popitem()[1]


@pytest.mark.parametrize(("do", "mend"), [("expired", "sign in again"), ("unknown", "check the keys")])
def test_bad_credentials_are_said_once_and_nothing_else_is_asked(moto: Any, do: str, mend: str) -> None:
    moto.tell(faults=[{"do": do}])
    ((name, ok, found),) = aws_checks(("us-east-1", "us-west-2"), {P_ON_DEMAND: 1}, patience=QUICK)
    assert (name, ok) == ("aws credentials", False) and mend in found
    assert len(moto.calls()) == 1


def test_absent_credentials_are_said_without_a_call(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    ((_, ok, found),) = aws_checks((), {}, patience=QUICK)
    assert not ok and "aws configure" in found and moto.calls() == []


@pytest.mark.parametrize("action", ["RunInstances", "DescribeInstances", "TerminateInstances"])
def test_a_missing_permission_is_named(moto: Any, action: str) -> None:
    moto.tell(faults=[{"service": "ec2", "action": action, "do": "denied"}])
    found = failed(aws_checks(("us-west-2",), {}, patience=QUICK))
    assert list(found) == [f"aws us-west-2 {action}"]
    assert f"IAM permission ec2:{action}" in found[f"aws us-west-2 {action}"]


def test_ending_a_machine_that_is_none_proves_no_refusal(moto: Any) -> None:
    gone = {"action": "TerminateInstances", "do": "error", "code": "InvalidInstanceID.NotFound", "status": 400}
    moto.tell(faults=[gone])
    *_, (name, ok, found) = aws_checks(("us-west-2",), {}, patience=QUICK)
    assert (name, ok) == ("aws us-west-2 TerminateInstances", True) and "not refused" in found
