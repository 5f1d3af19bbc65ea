"""GcpAccess: which project, whose credentials, and which endpoints.

Google's Python libraries read no endpoint from the environment; Google's command line does, and its variables are
used here: `CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE`, `..._CLOUDBILLING` and `..._CLOUDRESOURCEMANAGER`, each a URL
whose path is ignored. A stand-in for Compute Engine on this machine (a loopback address) stands in for all of Google
Cloud: services without a variable of their own are asked there too, and nothing there is told any credentials. Every
other endpoint must be https, for it is told the real ones.
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import SplitResult, urlsplit

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError

from hexcloud.domain.errors import MarketError

OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
PROJECT = "GOOGLE_CLOUD_PROJECT"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"


class Service(StrEnum):
    """An API of Google Cloud, by the first word of its host's name."""

    COMPUTE = "compute"
    BILLING = "cloudbilling"
    RESOURCES = "cloudresourcemanager"


@dataclass(frozen=True, repr=False)
class GcpAccess:
    """A way in. Its credentials are never printed."""

    project: str
    endpoints: Mapping[Service, str]
    """Overrides only, as scheme://host:port."""
    credentials: Any = None
    """google.auth Credentials; None when nobody but this machine is asked."""

    @property
    def account(self) -> str:
        """Who asks, for people."""
        if self.credentials is None:
            return "nobody (a stand-in on this machine is asked)"
        return str(getattr(self.credentials, "service_account_email", None) or "the application default credentials")

    def url(self, service: Service) -> str:
        """Return the endpoint to ask, without a path."""
        return self.endpoints.get(service, f"https://{service}.googleapis.com")

    def credentials_for(self, service: Service) -> Any:
        """Return what to show to a service: nothing to one on this machine, unless the program gave credentials."""
        return _nobody() if self.credentials is None else self.credentials

    def client_options(self, service: Service) -> ClientOptions:
        """Return how a client library finds the endpoint."""
        return ClientOptions(api_endpoint=self.endpoints.get(service))


def open_access(credentials: Any = None, environ: Mapping[str, str] = os.environ) -> GcpAccess:
    """Find project, credentials and endpoints. Raises MarketError, with the mend, when one is missing or unsafe."""
    endpoints = _endpoints(environ)
    local = [service for service in endpoints if _is_local(endpoints[service])]
    project = environ.get(PROJECT, "")
    if credentials is None and len(local) < len(Service):
        if local:
            raise MarketError(
                f"{OVERRIDE}*: {local[0]} is asked on this machine and others are not; override all or none"
            )
        credentials, found = _default_credentials()
        project = project or found
    if not project:
        raise MarketError(f"no Google Cloud project: set {PROJECT}, or run `gcloud config set project PROJECT`")
    return GcpAccess(project=project, endpoints=endpoints, credentials=credentials)


def _nobody() -> Any:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def _default_credentials() -> tuple[Any, str]:
    try:
        credentials, project = google.auth.default(scopes=[SCOPE])
    except (GoogleAuthError, OSError, ValueError) as error:
        raise MarketError(f"no Google Cloud credentials: {LOG_IN}") from error
    return credentials, project or ""


def _endpoints(environ: Mapping[str, str]) -> dict[Service, str]:
    given = {service: environ.get(OVERRIDE + service.upper(), "") for service in Service}
    found = {service: _endpoint(OVERRIDE + service.upper(), url) for service, url in given.items() if url}
    compute = found.get(Service.COMPUTE)
    if compute and _is_local(compute):
        return {service: found.get(service, compute) for service in Service}
    return found


def _endpoint(name: str, text: str) -> str:
    parts = _split(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise MarketError(f"{name} must be a URL, such as http://127.0.0.1:8123")
    if parts.username or parts.password:
        raise MarketError(f"{name} holds a user or a password, which nobody asks for: leave them out")
    url = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme == "http" and not _is_local(url):
        raise MarketError(f"{name} must be https, for it is told your credentials")
    return url


def _split(text: str) -> SplitResult | None:
    try:
        return urlsplit(text)
    except ValueError:
        return None


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
