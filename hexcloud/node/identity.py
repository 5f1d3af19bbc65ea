"""Identity: who a node is, from its directory and its environment, and how it speaks to its log."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import ValidationError

from hexcloud.domain.command import CERTIFICATE_FILE, NODE_FILE, NodeSpec
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.plan import Role

NODE_TOKEN = "HEXCLOUD_NODE_TOKEN"
RUN_SECRET = "HEXCLOUD_RUN_SECRET"
CONTROLLER_TOKEN = "HEXCLOUD_CONTROLLER_TOKEN"
TLS_KEY = "HEXCLOUD_TLS_KEY"
HOST = "HEXCLOUD_NODE_HOST"
"""Address on which a node listens; see node/address.py for what it is without."""
SKY_RANK = "SKYPILOT_NODE_RANK"
SECRETS = (NODE_TOKEN, RUN_SECRET, CONTROLLER_TOKEN, TLS_KEY)
"""Of a gang, whose machines are started alike, those of rank 1 may be called `..._1`."""


@dataclass(frozen=True)
class Identity:
    """A node's specification and secrets. Secrets never show in a representation."""

    spec: NodeSpec
    token: str = field(repr=False)
    run_secret: str = field(repr=False)
    controller_token: str = field(repr=False)
    """Empty but on the trainer's head node."""
    tls_key: str = field(default="", repr=False)
    """By which the head proves the run's certificate; empty where nobody else's machine dials it."""
    certificate: str = ""
    """That certificate (PEM)."""

    @property
    def marker_secret(self) -> str:
        """What signs checkpoints and result in the run's store: heads and the controller have it, and nobody else.

        Rollout nodes may hold keys of the store; what one of them writes there is not signed, and no head loads it.
        """
        return self.controller_token

    @property
    def run_dir(self) -> Path:
        """The folder of pointer, checkpoints and metrics: all nodes', or with a store, this node's own."""
        return Path(self.spec.run_dir)


def read_identity(directory: Path, role: Role, environment: Mapping[str, str]) -> Identity:
    """Read `node.json` and the secrets. Raises ConfigError that names what is missing or wrong."""
    path = directory / NODE_FILE
    secrets = _secrets(environment)
    try:
        spec = NodeSpec.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: not the specification of a node: {error}") from error
    if spec.role is not role:
        raise ConfigError(f"{path}: this is a {spec.role} node, started as {role}")
    if missing := [name for name in (NODE_TOKEN, RUN_SECRET) if not secrets[name]]:
        raise ConfigError(f"{path}: {', '.join(missing)} must be set in the environment")
    certificate = directory / CERTIFICATE_FILE
    return Identity(
        spec=spec,
        token=secrets[NODE_TOKEN],
        run_secret=secrets[RUN_SECRET],
        controller_token=secrets[CONTROLLER_TOKEN],
        tls_key=secrets[TLS_KEY],
        certificate=certificate.read_text() if certificate.exists() else "",
    )


def node_rank(environment: Mapping[str, str]) -> int:
    """Return a machine's rank in its gang, as SkyPilot says; 0 of a machine alone."""
    rank = environment.get(SKY_RANK, "")
    return int(rank) if rank.isdecimal() else 0


def _secrets(environment: Mapping[str, str]) -> dict[str, str]:
    rank = node_rank(environment)
    return {name: environment.get(f"{name}_{rank}") or environment.get(name, "") for name in SECRETS}


def child_environment(environment: Mapping[str, str], private: tuple[str, ...] = (), **needed: str) -> dict[str, str]:
    """Return a child's environment: no secret but those `needed`, and one thread where the default is all cores.

    `private` names further variables that are for the node's program alone.
    """
    kept = {name: value for name, value in environment.items() if not _is_secret(name) and name not in private}
    return {"OMP_NUM_THREADS": "1"} | kept | needed


def _is_secret(name: str) -> bool:
    plain, _, rank = name.rpartition("_")
    return name in SECRETS or (plain in SECRETS and rank.isdecimal())


def log_as_json(identity: Identity) -> None:
    """Write every log event as one JSON line to standard output, which is the node's log."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
    )
    structlog.contextvars.bind_contextvars(node=identity.spec.node_id)
