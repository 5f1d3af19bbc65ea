"""Every failure of the SDK becomes one line that says what failed and how to mend it."""

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from hexcloud.adapters.clouds.aws_errors import AwsError, Why, one_line, refusal, said_plainly

ASKED, ACTION = "us-east-1, DescribeInstances", "ec2:DescribeInstances"


def answered(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "in\nmany\nwords"}}, "DescribeInstances")


@pytest.mark.parametrize(
    ("error", "why", "mend"),
    [
        (answered("ExpiredToken"), Why.CREDENTIALS, "sign in again"),
        (answered("RequestExpired"), Why.CREDENTIALS, "clock"),
        (answered("AuthFailure"), Why.CREDENTIALS, "check the keys"),
        (answered("UnauthorizedOperation"), Why.DENIED, "IAM permission ec2:DescribeInstances"),
        (answered("OptInRequired"), Why.DENIED, "enable it"),
        (answered("RequestLimitExceeded"), Why.THROTTLED, "wait a few minutes"),
        (answered("TooManyRequestsException"), Why.THROTTLED, "wait a few minutes"),
        (answered("InternalError"), Why.OTHER, "InternalError: in many words"),
        (NoCredentialsError(), Why.CREDENTIALS, "aws configure"),
        (ProfileNotFound(profile="mine"), Why.CREDENTIALS, "AWS_PROFILE"),
        (UnauthorizedSSOTokenError(), Why.CREDENTIALS, "aws sso login"),
        (ReadTimeoutError(endpoint_url="http://x"), Why.SILENT, "no answer in time"),
        (ConnectTimeoutError(endpoint_url="http://x"), Why.SILENT, "no answer in time"),
        (EndpointConnectionError(endpoint_url="http://x"), Why.SILENT, "AWS_ENDPOINT_URL"),
        (ResponseParserError("not XML"), Why.OTHER, "cannot be read"),
        (KeyError("Regions"), Why.OTHER, "KeyError"),
    ],
)
def test_a_failure_says_what_to_do(error: Exception, why: Why, mend: str) -> None:
    said = refusal(error, ASKED, ACTION)
    assert said.why is why
    assert mend in str(said)
    assert str(said).startswith("AWS us-east-1, DescribeInstances: ")
    assert "\n" not in str(said)


def test_an_error_without_a_code_is_still_a_line() -> None:
    assert "unknown" in str(refusal(ClientError({}, "X"), ASKED, ACTION))


def test_a_long_message_is_cut() -> None:
    assert len(one_line("word " * 1000)) == 200


def test_our_own_refusals_pass_unchanged() -> None:
    mine = AwsError(ASKED, "nothing there", Why.EMPTY)
    with pytest.raises(AwsError) as caught, said_plainly(ASKED, ACTION):
        raise mine
    assert caught.value is mine
