"""What a cloud tells a machine about itself: whether it will be taken away, and under which address it is reached.

AWS: the instance metadata service, version 2 (a session token, then plain GETs). Google: the metadata server. Both are
link-local and need no keys. `AWS_EC2_METADATA_SERVICE_ENDPOINT` and `GCE_METADATA_HOST` lead elsewhere, as in the
clouds' own SDKs.
"""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

import httpx

from hexcloud.domain.errors import ConfigError, ProvisionError
from hexcloud.domain.messages import INTERRUPTION, REBALANCE, Notice

AWS_ENDPOINT, AWS_ENDPOINT_VARIABLE = "http://169.254.169.254", "AWS_EC2_METADATA_SERVICE_ENDPOINT"
GCP_HOST, GCP_HOST_VARIABLE = "metadata.google.internal", "GCE_METADATA_HOST"
CALL_S = 2.0
"""The service is on the machine's own host: one that is silent for so long is not there."""
TOKEN_S = 21_600
"""The longest that AWS gives a session token."""
AWS_NOTICE_S = 120.0
"""AWS promises two minutes from the notice to the end of a spot machine."""
GCP_PREEMPTION_S = 30.0
GCP_MAINTENANCE_S = 60.0
"""Google promises these; machines with GPUs hear of maintenance an hour before, which the value does not tell."""
MAX_ANSWER = 10_000


class Metadata(Protocol):
    """One machine's view. Calls raise ProvisionError when the service does not answer sensibly."""

    async def notice(self) -> Notice | None:
        """Return the cloud's word about this machine's end, None when it says nothing."""
        ...

    async def public_address(self) -> str:
        """Return the address by which the world reaches this machine; empty when it does not."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


def open_metadata(cloud: str, environment: Mapping[str, str], clock: Callable[[], float] = time.time) -> Metadata:
    """Return a cloud's metadata service. Raises ConfigError for a cloud that has none known here."""
    if cloud == "aws":
        return AwsMetadata(environment.get(AWS_ENDPOINT_VARIABLE) or AWS_ENDPOINT, clock)
    if cloud == "gcp":
        return GcpMetadata(f"http://{environment.get(GCP_HOST_VARIABLE) or GCP_HOST}", clock)
    raise ConfigError(f"notice: {cloud!r} is no cloud whose metadata service is known; allowed: aws, gcp")


class AwsMetadata:
    """Implements Metadata on EC2."""

    def __init__(self, endpoint: str, clock: Callable[[], float]) -> None:
        self._http = _client(endpoint)
        self._clock = clock
        self._token = ""

    async def notice(self) -> Notice | None:
        """Return the interruption that is coming, else the recommendation to move away."""
        if action := await self._get("spot/instance-action"):
            said = _object(action)
            until_s = _moment(said.get("time"), self._clock() + AWS_NOTICE_S)
            return Notice(cause=INTERRUPTION, until_s=until_s, detail=str(said.get("action", ""))[:40])
        if advice := await self._get("events/recommendations/rebalance"):
            return Notice(cause=REBALANCE, until_s=_moment(_object(advice).get("noticeTime"), self._clock()))
        return None

    async def public_address(self) -> str:
        """Return the public IPv4 address."""
        return (await self._get("public-ipv4") or "").strip()

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def _get(self, name: str) -> str | None:
        """Return a value, None when there is none. A session token that ended is asked for anew, once."""
        for _ in range(2):
            if not self._token:
                wish = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
                self._token = _said(await _call(self._http, "PUT", "/latest/api/token", wish)) or ""
            headers = {"X-aws-ec2-metadata-token": self._token}
            answer = await _call(self._http, "GET", f"/latest/meta-data/{name}", headers)
            if answer.status_code != HTTPStatus.UNAUTHORIZED:
                return _said(answer)
            self._token = ""
        return _said(answer)


class GcpMetadata:
    """Implements Metadata on Compute Engine."""

    def __init__(self, endpoint: str, clock: Callable[[], float]) -> None:
        self._http = _client(endpoint)
        self._clock = clock

    async def notice(self) -> Notice | None:
        """Return the preemption that has begun, or maintenance that ends the machine."""
        if await self._get("preempted") == "TRUE":
            return Notice(cause=INTERRUPTION, until_s=self._clock() + GCP_PREEMPTION_S, detail="preempted")
        event = await self._get("maintenance-event") or ""
        if event.startswith("TERMINATE"):
            return Notice(cause=INTERRUPTION, until_s=self._clock() + GCP_MAINTENANCE_S, detail=event[:40])
        return None

    async def public_address(self) -> str:
        """Return the external IPv4 address."""
        return (await self._get("network-interfaces/0/access-configs/0/external-ip") or "").strip()

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def _get(self, name: str) -> str | None:
        wish = {"Metadata-Flavor": "Google"}
        answer = await _call(self._http, "GET", f"/computeMetadata/v1/instance/{name}", wish)
        if answer.headers.get("Metadata-Flavor") != "Google":
            raise ProvisionError(f"{self._http.base_url}: somebody else than Google's metadata server answers")
        return _said(answer)


def _client(endpoint: str) -> httpx.AsyncClient:
    # No proxy: it would answer for a machine of its own. No redirects: nobody there sends any.
    return httpx.AsyncClient(base_url=endpoint, timeout=CALL_S, trust_env=False, follow_redirects=False)


async def _call(http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    try:
        return await http.request(method, path, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ProvisionError(f"the metadata service does not answer {path}: {error!r}") from error


def _said(answer: httpx.Response) -> str | None:
    if answer.status_code == HTTPStatus.NOT_FOUND:
        return None
    if not answer.is_success or len(answer.content) > MAX_ANSWER:
        raise ProvisionError(f"the metadata service answers {answer.request.url.path}: status {answer.status_code}")
    return answer.text


def _object(text: str) -> dict[str, object]:
    """Return the fields of a JSON object; none of what cannot be read: that something was said is what counts."""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _moment(text: object, otherwise_s: float) -> float:
    """Return seconds since the epoch of a time such as 2026-11-29T22:00:00Z."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return otherwise_s
