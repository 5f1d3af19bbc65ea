"""TrainerLink: the trainer's calls to the coordinator on its own machine. Every call may be repeated."""

import time

import httpx

from hexcloud.domain.errors import EngineError
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.messages import Batch, Evaluation, Heeded, Rendezvous, StepReport
from hexcloud.domain.raw import RAW, parse_batch
from hexcloud.domain.trust import COORDINATOR_NAME, require_private, trusted_by

_PATIENCE_S = 30.0
"""The coordinator starts beside us and may come later; one that is silent for longer is gone."""
_PAUSE_S = 0.2
_POLL_TIMEOUT_S = 60.0
"""Well over the coordinator's long poll."""


class TrainerLink:
    """HTTP with the node's token. Calls raise EngineError when the coordinator refuses or is gone."""

    def __init__(self, url: str, token: str, ca_pem: str = "", patience_s: float = _PATIENCE_S) -> None:
        """`ca_pem` is the run's authority. Raises EngineError for an address to which a token must not be sent."""
        require_private(url)
        self._patience_s = patience_s
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=_POLL_TIMEOUT_S, trust_env=False, verify=trusted_by(ca_pem)
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def batch(self) -> Batch:
        """Wait a little for the next batch; it may come back empty: ask again. The same one until a publish."""
        answer = self._call("GET", "/batch")
        try:
            if answer.headers.get("content-type") == RAW:
                return parse_batch(answer.content)
            return Batch.model_validate_json(answer.content)
        except ValueError as error:
            raise EngineError(f"the coordinator's batch cannot be read: {error}") from error

    def publish(self, report: StepReport) -> None:
        """Say that a version is on disk."""
        self._call("POST", "/publish", report)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Report an accuracy."""
        self._call("POST", "/evaluation", evaluation)

    def rendezvous(self, rendezvous: Rendezvous) -> bool:
        """Say where other ranks are met, and how far they are; return whether their world is still wanted."""
        heeded = self._call("POST", "/rendezvous", rendezvous)
        try:
            return Heeded.model_validate_json(heeded.content).is_wanted
        except ValueError as error:
            raise EngineError(f"the coordinator's answer of /rendezvous cannot be read: {error}") from error

    def finish(self) -> None:
        """Say that output and checkpoint are written."""
        self._call("POST", "/finish")

    def _call(self, method: str, path: str, body: Frozen | None = None) -> httpx.Response:
        content = None if body is None else body.model_dump_json()
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                response = self._http.request(
                    method,
                    path,
                    content=content,
                    headers={"Content-Type": "application/json", "Accept": RAW},
                    extensions={"sni_hostname": COORDINATOR_NAME},
                )
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    raise EngineError(f"the coordinator does not answer {path}: {error!r}") from error
                time.sleep(_PAUSE_S)
                continue
            if not response.is_success:
                raise EngineError(f"the coordinator refused {path}: {response.status_code} {response.text[:300]}")
            return response
