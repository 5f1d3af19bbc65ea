"""Who may call the coordinator: bearer tokens of admitted nodes, by hash, and the controller's."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from hexcloud.domain.fleet import NodeId


def token_sha256(token: str) -> str:
    """Return a token's SHA-256 (hex), as `Admit` carries it."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class Caller:
    """Who a token belongs to: a node, or the controller (None)."""

    node_id: NodeId | None

    @property
    def is_controller(self) -> bool:
        """Whether the controller calls."""
        return self.node_id is None


class AccessList:
    """Hashes of the tokens that are let in. It never holds a node's token itself."""

    def __init__(self, controller_token: str, nodes: Mapping[NodeId, str]) -> None:
        """Begin with the controller's token and the hashes (hex) of nodes known from the start: the trainer's head."""
        self._controller = token_sha256(controller_token)
        self._hashes: dict[NodeId, str] = {}
        self._by_hash: dict[str, NodeId] = {}
        for node_id, sha256 in nodes.items():
            self.admit(node_id, sha256)

    def admit(self, node_id: NodeId, sha256: str) -> None:
        """Let a node in with the token of this hash, instead of any before."""
        self.revoke(node_id)
        self._hashes[node_id] = sha256.lower()
        self._by_hash[sha256.lower()] = node_id

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
        node_id = self._by_hash.get(digest)
        return None if node_id is None else Caller(node_id)
