"""HttpCoordinator: the controller's line to the run's coordinator, found by the signed pointer file."""

from pathlib import Path

import httpx
from pydantic import BaseModel, ValidationError

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.messages import Admit, DrainRequest, Pointer, Renewal, RunView, StopRequest
from hexcloud.domain.pointer import parse_pointer

TIMEOUT_S = 3.0
"""A coordinator answers from memory; one that takes longer is treated as silent for this turn."""


class Credentials(Frozen):
    """What the controller needs to find and to address one run's coordinator."""

    run_id: RunId
    secret: str
    """HMAC key of the pointer file (HEXCLOUD_RUN_SECRET)."""
    token: str
    """Bearer token of /status and /control/* (HEXCLOUD_CONTROLLER_TOKEN)."""

    def __repr__(self) -> str:
        """Show whose credentials these are, and not what they are."""
        return f"Credentials(run_id={self.run_id!r}, hidden)"

    __str__ = __repr__


class HttpCoordinator:
    """Implements ports.Coordinator. Every call raises EngineError when the coordinator cannot be found or answers no.

    The address may change when the trainer's head moves: a call that fails reads the pointer again and, when it
    points elsewhere now, is made once more there. An epoch lower than one seen before is an old pointer, not a new one.
    """

    def __init__(self, pointer_path: Path, credentials: Credentials, timeout_s: float = TIMEOUT_S) -> None:
        self._path = pointer_path
        self._credentials = credentials
        self._pointer: Pointer | None = None
        # trust_env=False: a proxy of the environment must see neither the token nor the calls.
        self._client = httpx.Client(
            timeout=timeout_s, trust_env=False, headers={"Authorization": f"Bearer {credentials.token}"}
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def view(self) -> RunView:
        """Return the run as the coordinator knows it."""
        answer = self._call("GET", "/status", None)
        try:
            return RunView.model_validate_json(answer.content)
        except ValidationError as error:
            raise EngineError(f"coordinator: the answer of /status cannot be read: {error}") from error

    def renew(self, run_until_s: float) -> None:
        """Extend the spend lease of the whole fleet, wall seconds since the epoch."""
        self._call("POST", "/control/renew", Renewal(run_until_s=run_until_s))

    def admit(self, node_id: NodeId, token_sha256: str, revoke: tuple[NodeId, ...] = ()) -> None:
        """Let a node register with the token of this hash (hex); revoke others."""
        self._call("POST", "/control/admit", Admit(node_id=node_id, token_sha256=token_sha256, revoke=revoke))

    def drain(self, node_id: NodeId) -> None:
        """Tell a node to finish what it holds and to exit."""
        self._call("POST", "/control/drain", DrainRequest(node_id=node_id))

    def stop(self, reason: str) -> None:
        """Tell the run to checkpoint, write its output and say `done`."""
        self._call("POST", "/control/stop", StopRequest(reason=reason))

    def _call(self, method: str, path: str, body: BaseModel | None) -> httpx.Response:
        pointer = self._pointer or self._read_pointer()
        try:
            return self._send(pointer, method, path, body)
        except EngineError:
            moved = self._read_pointer()
            if moved == pointer:
                raise
            return self._send(moved, method, path, body)

    def _send(self, pointer: Pointer, method: str, path: str, body: BaseModel | None) -> httpx.Response:
        content = None if body is None else body.model_dump_json()
        try:
            answer = self._client.request(
                method, pointer.url.rstrip("/") + path, content=content, headers={"Content-Type": "application/json"}
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"coordinator at {pointer.url}: {method} {path}: {error!r}") from error
        if not answer.is_success:
            raise EngineError(
                f"coordinator at {pointer.url}: {method} {path}: status {answer.status_code}: {answer.text[:200]}"
            )
        return answer

    def _read_pointer(self) -> Pointer:
        try:
            pointer = parse_pointer(self._path.read_bytes(), self._credentials.run_id, self._credentials.secret)
        except OSError as error:
            raise EngineError(f"{self._path}: no pointer to the coordinator (yet): {error}") from error
        except EngineError as error:
            raise EngineError(f"{self._path}: {error}") from error
        if self._pointer is not None and pointer.epoch < self._pointer.epoch:
            raise EngineError(
                f"{self._path}: the pointer is of epoch {pointer.epoch}; epoch {self._pointer.epoch} was seen"
            )
        self._pointer = pointer
        return pointer
