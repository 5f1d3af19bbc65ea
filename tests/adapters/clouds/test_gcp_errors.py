"""What went wrong at Google, in one line that says what to do."""

from typing import Any

import pytest
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.protobuf.json_format import ParseError
from hypothesis import given, settings
from hypothesis import strategies as st
from requests.exceptions import ConnectionError as Broken
from requests.exceptions import ReadTimeout

from hexcloud.adapters.clouds.gcp_errors import FOREIGN, Ask, is_passing, reason, translated
from hexcloud.domain.errors import MarketError

core: Any = exceptions
auth: Any = auth_exceptions
"""Their constructors have no types."""
ASK = Ask("zones", "compute.googleapis.com", "compute.zones.list", "demo")
REQUIRED = "Required 'compute.zones.get' permission for 'projects/demo/zones/x'"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (core.TooManyRequests("slow down"), "throttled by compute.googleapis.com"),
        (core.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]), "throttled by compute.googleapis.com"),
        (core.Forbidden(REQUIRED), "lacks the permission compute.zones.get in project 'demo'"),
        (core.Forbidden("no"), "lacks the permission compute.zones.list in project 'demo'"),
        (
            core.Forbidden("x", details=[{"reason": "SERVICE_DISABLED"}]),
            "gcloud services enable compute.googleapis.com",
        ),
        (core.Unauthorized("expired"), "gcloud auth application-default login"),
        (auth.RefreshError("invalid_grant"), "gcloud auth application-default login"),
        (auth.TransportError("no route"), "cannot be reached"),
        (core.NotFound("no"), "check GOOGLE_CLOUD_PROJECT"),
        (core.BadRequest("Invalid\nvalue"), "answered 400: Invalid value"),
        (ReadTimeout("x"), "no answer from compute.googleapis.com in time"),
        (TimeoutError("timed out"), "no answer from compute.googleapis.com in time"),
        (Broken("reset"), "cannot be reached"),
        (ParseError("x"), "an answer that cannot be read (ParseError)"),
    ],
)
def test_each_failure_says_what_to_do(error: Exception, words: str) -> None:
    assert words in reason(error, ASK)
    with pytest.raises(MarketError, match=r"^zones: "), translated(ASK):
        raise error


def test_behind_tries_that_ran_out_stands_the_cause() -> None:
    with pytest.raises(MarketError, match="throttled"), translated(ASK):
        raise core.RetryError("Timeout of 60s exceeded", core.TooManyRequests("x"))


def test_an_error_of_ours_passes_as_it_is() -> None:
    with pytest.raises(MarketError, match=r"^mine$"), translated(ASK):
        raise MarketError("mine")


def test_only_what_may_pass_is_tried_again() -> None:
    assert (
        is_passing(core.ServiceUnavailable("x")) and is_passing(ReadTimeout("x")) and is_passing(core.BadGateway("x"))
    )
    assert is_passing(core.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]))
    assert (
        not is_passing(core.Forbidden("x")) and not is_passing(core.Unauthorized("x")) and not is_passing(ValueError())
    )


@settings(deadline=None)
@given(st.text(), st.sampled_from([core.Forbidden, core.BadRequest, core.InternalServerError, core.NotFound]))
def test_whatever_google_says_the_answer_is_one_short_line(message: str, kind: Any) -> None:
    line = reason(kind(message), ASK)
    assert line and "\n" not in line and len(line) < 400


def test_no_secret_in_an_endpoint_is_told() -> None:
    said = "400 GET http://user:hunter2@127.0.0.1:9/compute: no"
    for error in (core.BadRequest(said), core.InternalServerError(said), core.Forbidden(said), Broken(said)):
        for ask in (ASK, Ask("price list", "cloudbilling.googleapis.com", "", "demo")):
            assert "hunter2" not in reason(error, ask)


def test_all_that_the_libraries_raise_is_caught() -> None:
    assert all(
        issubclass(kind, FOREIGN) for kind in (UnicodeDecodeError, KeyError, Broken, core.RetryError, auth.RefreshError)
    )
