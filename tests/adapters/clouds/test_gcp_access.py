"""Project, credentials and endpoints of Google Cloud."""

from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials

from hexcloud.adapters.clouds.gcp_access import OVERRIDE, PROJECT, GcpAccess, Service, open_access
from hexcloud.domain.errors import MarketError

LOCAL = "http://127.0.0.1:8123"
COMPUTE, BILLING = f"{OVERRIDE}COMPUTE", f"{OVERRIDE}CLOUDBILLING"


def test_a_stand_in_on_this_machine_stands_in_for_all_and_is_told_nothing() -> None:
    access = open_access(environ={PROJECT: "demo", COMPUTE: f"{LOCAL}/compute/v1/"})
    assert {access.url(service) for service in Service} == {LOCAL}
    assert all(isinstance(access.credentials_for(service), AnonymousCredentials) for service in Service)
    assert access.project == "demo" and access.account.startswith("nobody")


def test_each_service_may_have_an_endpoint_of_its_own() -> None:
    access = open_access(environ={PROJECT: "demo", COMPUTE: LOCAL, BILLING: "http://[::1]:9"})
    assert access.url(Service.BILLING) == "http://[::1]:9" and access.url(Service.RESOURCES) == LOCAL


def test_without_overrides_google_is_asked_with_the_users_credentials() -> None:
    given = object()
    access = open_access(given, {PROJECT: "demo"})
    assert access.url(Service.COMPUTE) == "https://compute.googleapis.com"
    assert access.credentials_for(Service.COMPUTE) is given
    assert access.client_options(Service.COMPUTE).api_endpoint is None


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({COMPUTE: LOCAL}, f"set {PROJECT}"),
        ({PROJECT: "demo", COMPUTE: "http://gcp.example.com"}, "must be https"),
        ({PROJECT: "demo", COMPUTE: "127.0.0.1:8123"}, "must be a URL"),
        ({PROJECT: "demo", COMPUTE: "http://[::1"}, "must be a URL"),
        ({PROJECT: "demo", BILLING: LOCAL}, "override all or none"),
        ({PROJECT: "demo", COMPUTE: "http://user:hunter2@127.0.0.1:9"}, "holds a user or a password"),
        ({PROJECT: "demo", COMPUTE: "https://hunter2@gcp.example.com"}, "holds a user or a password"),
        ({PROJECT: "demo", COMPUTE: "http://user:hunter2@gcp.example.com"}, "holds a user or a password"),
        ({PROJECT: "demo", COMPUTE: "ftp://user:hunter2@gcp.example.com"}, "must be a URL"),
        ({PROJECT: "demo", COMPUTE: "user:hunter2@gcp.example.com"}, "must be a URL"),
        ({PROJECT: "demo", COMPUTE: "http://user:hunter2@[::1"}, "must be a URL"),
    ],
)
def test_a_wrong_environment_is_refused_with_its_mend(environ: dict[str, str], words: str) -> None:
    with pytest.raises(MarketError, match=words) as caught:
        open_access(environ=environ)
    assert "hunter2" not in str(caught.value)
    assert words.startswith("override") or PROJECT in words or COMPUTE in str(caught.value), "the variable is named"


def test_a_key_file_that_is_none_is_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(MarketError, match="no Google Cloud credentials: run `gcloud auth application-default login`"):
        open_access(environ={PROJECT: "demo"})


def test_credentials_are_never_printed() -> None:
    access = GcpAccess(project="demo", endpoints={}, credentials="secret-token")
    assert "secret" not in repr(access) and "secret" not in str(access)
