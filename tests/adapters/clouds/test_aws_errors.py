"""Every failure of the SDK becomes one line that says what failed and how to mend it."""

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from hexcloud.adapters.clouds.aws_errors import AwsError, Why, one_line, refusal, said_plainly

SECRET = "http://user:hunter2@127.0.0.1:9/"
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


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url=SECRET),
        ReadTimeoutError(endpoint_url=SECRET),
        ConnectTimeoutError(endpoint_url=SECRET),
        ProxyConnectionError(proxy_url=SECRET),
        OSError(f"no route to {SECRET}"),
        ValueError(f"Invalid endpoint: {SECRET}"),
        ResponseParserError(f"{SECRET} said nothing"),
        ClientError({"Error": {"Code": "Odd", "Message": f"ask {SECRET}"}}, "X"),
    ],
)
def test_no_secret_in_an_endpoint_is_told(error: Exception) -> None:
    assert "hunter2" not in str(refusal(error, ASKED, ACTION))
    assert "hunter2" not in str(AwsError(SECRET, SECRET))


def test_an_endpoint_that_cannot_be_reached_is_named_by_its_variable() -> None:
    said = str(refusal(EndpointConnectionError(endpoint_url="http://127.0.0.1:9/"), ASKED, ACTION))
    assert "AWS_ENDPOINT_URL" in said and "127.0.0.1" not in said


def test_our_own_refusals_pass_unchanged() -> None:
    mine = AwsError(ASKED, "nothing there", Why.EMPTY)
    with pytest.raises(AwsError) as caught, said_plainly(ASKED, ACTION):
        raise mine
    assert caught.value is mine
