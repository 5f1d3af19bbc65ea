"""HttpCoordinator: the controller's line to the run's coordinator, found by the signed pointer file."""

import os
import time
from contextlib import suppress
from pathlib import Path

import httpx
from pydantic import BaseModel, ValidationError

from hexcloud.domain.errors import EngineError, StoreError, UnreadableError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.messages import POINTER_FILE, Admit, DrainRequest, Pointer, Renewal, RunView, StopRequest
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import parse_pointer
from hexcloud.domain.trust import COORDINATOR_NAME, require_private, trusted_by
from hexcloud.domain.world import GangPlan
from hexcloud.ports import Objects

TIMEOUT_S = 3.0
"""A coordinator answers from memory; one that takes longer is treated as silent for this turn."""

STORE_PAUSE_S = 10.0
"""A store that did not answer is left alone for so long: a turn has other things to do than to wait for it."""


class Credentials(Frozen):
    """What the controller needs to find and to address one run's coordinator."""

    run_id: RunId
    secret: str
    """HMAC key of the pointer file (HEXCLOUD_RUN_SECRET)."""
    token: str
    """Bearer token of /status and /control/* (HEXCLOUD_CONTROLLER_TOKEN)."""
    ca_pem: str = ""
    """The run's authority (public): without it only a coordinator on this machine is spoken to."""

    def __repr__(self) -> str:
        """Show whose credentials these are, and not what they are."""
        return f"Credentials(run_id={self.run_id!r}, hidden)"

    __str__ = __repr__


class HttpCoordinator:
    """Implements ports.Coordinator. Every call raises EngineError when the coordinator cannot be found or answers no.

    The address may change when the trainer's head moves: a call that fails reads the pointer again and, when it
    points elsewhere now, is made once more there. An epoch lower than one seen before is an old pointer, not a new one.
    """

    def __init__(
        self,
        pointer_path: Path,
        credentials: Credentials,
        timeout_s: float = TIMEOUT_S,
        objects: Objects | None = None,
    ) -> None:
        """`objects` is the run's store when its nodes have no folder in common with us; `pointer_path` is then a copy.

        The copy leads to the coordinator while the store is away.
        """
        self._path = pointer_path
        self._objects = objects
        self._credentials = credentials
        self._pointer: Pointer | None = None
        self._store_not_before_s = 0.0
        # trust_env=False: a proxy of the environment must see neither the token nor the calls.
        self._client = httpx.Client(
            timeout=timeout_s,
            trust_env=False,
            headers={"Authorization": f"Bearer {credentials.token}"},
            verify=trusted_by(credentials.ca_pem),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def view(self) -> RunView:
        """Return the run as the coordinator knows it. Raises UnreadableError when it answers with something else."""
        answer = self._call("GET", "/status", None)
        try:
            return RunView.model_validate_json(answer.content)
        except ValidationError as error:
            raise UnreadableError(f"coordinator: the answer of /status cannot be read: {error}") from error

    def renew(self, run_until_s: float, gang: GangPlan | None = None) -> None:
        """Extend the spend lease of the whole fleet, wall seconds since the epoch; say what is planned of the gang."""
        self._call("POST", "/control/renew", Renewal(run_until_s=run_until_s, gang=gang))

    def admit(self, node_id: NodeId, token_sha256: str, role: Role, revoke: tuple[NodeId, ...] = ()) -> None:
        """Let a node register with the token of this hash (hex), as this; revoke others."""
        self._call(
            "POST", "/control/admit", Admit(node_id=node_id, token_sha256=token_sha256, role=role, revoke=revoke)
        )

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
            require_private(pointer.url)
            answer = self._client.request(
                method,
                pointer.url.rstrip("/") + path,
                content=content,
                headers={"Content-Type": "application/json"},
                extensions={"sni_hostname": COORDINATOR_NAME},
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"coordinator at {pointer.url}: {method} {path}: {error!r}") from error
        if not answer.is_success:
            kind = UnreadableError if answer.is_server_error else EngineError
            raise kind(
                f"coordinator at {pointer.url}: {method} {path}: status {answer.status_code}: {answer.text[:200]}"
            )
        return answer

    def _read_pointer(self) -> Pointer:
        stored = self._stored_pointer()
        try:
            text = self._path.read_bytes() if stored is None else stored
            pointer = parse_pointer(text, self._credentials.run_id, self._credentials.secret)
        except OSError as error:
            raise EngineError(f"{self._path}: no pointer to the coordinator (yet): {error}") from error
        except EngineError as error:
            raise EngineError(f"{self._path}: {error}") from error
        if self._pointer is not None and pointer.epoch < self._pointer.epoch:
            raise EngineError(
                f"{self._path}: the pointer is of epoch {pointer.epoch}; epoch {self._pointer.epoch} was seen"
            )
        if stored is not None:
            self._keep(stored)
        self._pointer = pointer
        return pointer

    def _stored_pointer(self) -> bytes | None:
        """Return the store's pointer; None without a store, a pointer in it, or an answer: then the copy serves."""
        if self._objects is None or time.monotonic() < self._store_not_before_s:
            return None
        try:
            return self._objects.get(POINTER_FILE)
        except StoreError:
            self._store_not_before_s = time.monotonic() + STORE_PAUSE_S
            return None

    def _keep(self, text: bytes) -> None:
        """Copy a pointer that has been verified into our folder, whole; a full disk must not cut the line."""
        draft = self._path.with_suffix(f".{os.getpid()}.tmp")
        with suppress(OSError):
            draft.write_bytes(text)
            draft.replace(self._path)
