"""What went wrong when Google Cloud was asked, in one line that says what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from google.api_core import exceptions as core
from google.auth.exceptions import GoogleAuthError, TransportError
from google.protobuf.json_format import ParseError

from hexcloud.adapters.clouds.discreet import discreet
from hexcloud.adapters.clouds.gcp_access import LOG_IN
from hexcloud.domain.errors import MarketError

FOREIGN = (
    core.GoogleAPIError,
    GoogleAuthError,
    OSError,
    ParseError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
"""What the client libraries raise; from ParseError on, on an answer that is not what the API promises."""
_MAX_QUOTE = 160
_NAMED = re.compile(r"'([a-z]{1,40}\.[A-Za-z.]{1,60})'")


@dataclass(frozen=True)
class Ask:
    """A question, as a problem names it."""

    what: str
    """`machine types of us-central1-a`."""
    api: str
    """Host of the API, such as `compute.googleapis.com`."""
    permission: str
    """Needed for it; empty when it needs none."""
    project: str


@contextmanager
def translated(ask: Ask) -> Iterator[None]:
    """Turn whatever the client libraries raise into a MarketError."""
    try:
        yield
    except FOREIGN as error:
        raise MarketError(f"{ask.what}: {reason(_cause(error), ask)}") from error


def is_passing(error: BaseException) -> bool:
    """Is it worth another try: throttling, a fault of the server, a broken connection?"""
    return is_throttling(error) or isinstance(error, core.ServerError | OSError)


def is_throttling(error: BaseException) -> bool:
    """Did we ask too often?"""
    if isinstance(error, core.Forbidden):
        return "rateLimitExceeded" in _details(error) or "RATE_LIMIT_EXCEEDED" in _details(error)
    return isinstance(error, core.TooManyRequests)


def reason(error: BaseException, ask: Ask) -> str:
    """Say what an error means for the one who asked."""
    if is_throttling(error):
        return f"throttled by {ask.api}; refresh again in a minute, or ask for a higher rate quota"
    if isinstance(error, core.Forbidden):
        return _forbidden(error, ask)
    if isinstance(error, core.Unauthorized) or (
        isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)
    ):
        return f"the credentials have expired or are refused; {LOG_IN}"
    if isinstance(error, core.NotFound):
        return f"not found in project {ask.project!r}; check GOOGLE_CLOUD_PROJECT"
    if isinstance(error, core.GoogleAPICallError):
        return f"{ask.api} answered {error.code or 'an error'}: {_quote(error.message)}"
    if isinstance(error, OSError | TransportError):
        return _unreachable(error, ask)
    return f"{ask.api} gave an answer that cannot be read ({type(error).__name__}); refresh again later"


def _cause(error: BaseException) -> BaseException:
    """Look behind the error that says only that tries ran out."""
    return error.cause if isinstance(error, core.RetryError) and error.cause else error


def _forbidden(error: core.Forbidden, ask: Ask) -> str:
    if any(
        word in _details(error) for word in ("SERVICE_DISABLED", "accessNotConfigured", "has not been used in project")
    ):
        return f"{ask.api} is not enabled in project {ask.project!r}; run `gcloud services enable {ask.api}`"
    named = _NAMED.search(str(error.message))
    permission = named.group(1) if named else ask.permission
    if not permission:
        return f"{ask.api} refuses the account: {_quote(error.message)}"
    return f"the account lacks the permission {permission} in project {ask.project!r}; grant a role that has it"


def _details(error: core.Forbidden) -> str:
    return f"{error.message} {error.errors} {error.details}"


def _unreachable(error: BaseException, ask: Ask) -> str:
    if "timeout" in type(error).__name__.lower() or "timed out" in str(error):
        return f"no answer from {ask.api} in time; refresh again later"
    return f"{ask.api} cannot be reached ({type(error).__name__}); check the network"


def _quote(text: object) -> str:
    line = discreet(str(text))
    return line if len(line) <= _MAX_QUOTE else line[: _MAX_QUOTE - 3] + "..."
