"""AwsError: what AWS or the way to it refused, as one line that says what failed and how to mend it.

Meaning of the codes: EC2 API reference, "Error codes"; Service Quotas and Price List references, "Common errors".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as UnreachableError
from botocore.parsers import ResponseParserError

from hexcloud.adapters.clouds.discreet import discreet
from hexcloud.domain.errors import MarketError

MAX_DETAIL_CHARS = 200
FAILURES = (
    BotoCoreError,
    ClientError,
    ResponseParserError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""All that the SDK lets through when an answer, a file of settings or the network is broken."""


class Why(StrEnum):
    """Kinds of refusal, by what the caller does next."""

    CREDENTIALS = "credentials"
    DENIED = "denied"
    THROTTLED = "throttled"
    SILENT = "silent"
    EMPTY = "empty"
    OTHER = "other"


class AwsError(MarketError):
    """AWS did not answer as asked. The message is one line for people."""

    def __init__(self, asked: str, said: str, why: Why = Why.OTHER, code: str = "") -> None:
        super().__init__(discreet(f"AWS {asked}: {said}"))
        self.why = why
        self.code = code


_EXPIRED = "the credentials have expired; sign in again (`aws sso login`, or fresh keys), or set this machine's clock"
_UNKNOWN = "AWS does not accept these credentials; check the keys, and that the region is enabled for the account"
_NONE = "no usable credentials; run `aws configure`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_THROTTLED = "throttled after every retry; wait a few minutes and refresh again, or ask for fewer regions"
_DENIED = "not allowed; ask for the IAM permission {action}"
_NOT_ENABLED = "the region is not enabled for the account; enable it or leave it out"

_BY_CODE: dict[str, tuple[Why, str]] = {
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"),
        (Why.CREDENTIALS, _EXPIRED),
    ),
    **dict.fromkeys(
        (
            "AuthFailure",
            "IncompleteSignature",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ),
        (Why.CREDENTIALS, _UNKNOWN),
    ),
    **dict.fromkeys(("AccessDenied", "AccessDeniedException", "UnauthorizedOperation"), (Why.DENIED, _DENIED)),
    "OptInRequired": (Why.DENIED, _NOT_ENABLED),
    **dict.fromkeys(
        (
            "EC2ThrottledException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "Throttling",
            "ThrottledException",
            "ThrottlingException",
            "TooManyRequestsException",
        ),
        (Why.THROTTLED, _THROTTLED),
    ),
}


@contextmanager
def said_plainly(asked: str, action: str) -> Iterator[None]:
    """Turn whatever the SDK raises into an AwsError. `action` is the IAM name of the call, `ec2:DescribeRegions`."""
    try:
        yield
    except AwsError:
        raise
    except FAILURES as error:
        raise refusal(error, asked, action) from error


def refusal(error: Exception, asked: str, action: str) -> AwsError:
    """Say what an error of the SDK means for the user."""
    if isinstance(error, ClientError):
        return _answered(error, asked, action)
    why, said = _unanswered(error)
    return AwsError(asked, said, why, type(error).__name__)


def _answered(error: ClientError, asked: str, action: str) -> AwsError:
    details = error.response.get("Error", {}) if isinstance(error.response, dict) else {}
    code = str(details.get("Code", "unknown"))
    if code in _BY_CODE:
        why, said = _BY_CODE[code]
        return AwsError(asked, f"{said.format(action=action)} ({code})", why, code)
    return AwsError(asked, f"{code}: {one_line(str(details.get('Message', '')))}", Why.OTHER, code)


def _unanswered(error: Exception) -> tuple[Why, str]:
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return Why.CREDENTIALS, f"{_NONE} ({one_line(str(error))})"
    if isinstance(error, CredentialRetrievalError | SSOError | TokenRetrievalError):
        return Why.CREDENTIALS, f"{_EXPIRED} ({one_line(str(error))})"
    if isinstance(error, ReadTimeoutError | ConnectTimeoutError):
        return Why.SILENT, f"no answer in time; try again later, or leave the region out ({type(error).__name__})"
    if isinstance(error, UnreachableError):
        return Why.SILENT, f"cannot be reached; check the network and AWS_ENDPOINT_URL ({type(error).__name__})"
    if isinstance(error, OSError):
        return Why.SILENT, f"cannot be reached; check the network and AWS_ENDPOINT_URL ({one_line(str(error))})"
    if isinstance(error, ResponseParserError):
        return Why.OTHER, f"the answer cannot be read; check AWS_ENDPOINT_URL ({one_line(str(error))})"
    return Why.OTHER, f"{type(error).__name__}: {one_line(str(error))}"


def one_line(text: str) -> str:
    """Fold a foreign message into one short line, without secrets in URLs."""
    line = discreet(text)
    return line if len(line) <= MAX_DETAIL_CHARS else line[: MAX_DETAIL_CHARS - 3] + "..."
