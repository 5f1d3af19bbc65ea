"""Who may call the coordinator: bearer tokens of admitted nodes, by hash, and the controller's."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role


def token_sha256(token: str) -> str:
    """Return a token's SHA-256 (hex), as `Admit` carries it."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class Caller:
    """Who a token belongs to: a node of some role, or the controller (None)."""

    node_id: NodeId | None
    role: Role | None = None

    @property
    def is_controller(self) -> bool:
        """Whether the controller calls."""
        return self.node_id is None


class AccessList:
    """Hashes of the tokens that are let in, and what for. It never holds a node's token itself."""

    def __init__(self, controller_token: str, trainer: Mapping[NodeId, str]) -> None:
        """Begin with the controller's token and the hash (hex) of the trainer's head, which is known from the start."""
        self._controller = token_sha256(controller_token)
        self._hashes: dict[NodeId, str] = {}
        self._by_hash: dict[str, Caller] = {}
        for node_id, sha256 in trainer.items():
            self.admit(node_id, sha256, Role.TRAINER)

    def admit(self, node_id: NodeId, sha256: str, role: Role = Role.ROLLOUT) -> None:
        """Let a node in for this role with the token of this hash, instead of any before."""
        self.revoke(node_id)
        self._hashes[node_id] = sha256.lower()
        self._by_hash[sha256.lower()] = Caller(node_id, role)

    def revoke(self, node_id: NodeId) -> None:
        """Let a node in no more."""
        self._by_hash.pop(self._hashes.pop(node_id, ""), None)

    def caller(self, authorization: str) -> Caller | None:
        """Return who sends this Authorization header, or None.

        Looked up by the token's hash: nobody can choose one that shares a beginning with another's, so how long it
        takes tells nothing.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        digest = token_sha256(token)
        if hmac.compare_digest(digest, self._controller):
            return Caller(None)
        return self._by_hash.get(digest)
