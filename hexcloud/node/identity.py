"""Identity: who a node is, from its directory and its environment, and how it speaks to its log."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import ValidationError

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.plan import Role

SPEC_FILE = "node.json"
NODE_TOKEN = "HEXCLOUD_NODE_TOKEN"
RUN_SECRET = "HEXCLOUD_RUN_SECRET"
CONTROLLER_TOKEN = "HEXCLOUD_CONTROLLER_TOKEN"
HOST = "HEXCLOUD_NODE_HOST"
"""Address on which a node listens and is reached; this machine only by default."""
SECRETS = (NODE_TOKEN, RUN_SECRET, CONTROLLER_TOKEN)


@dataclass(frozen=True)
class Identity:
    """A node's specification and secrets. Secrets never show in a representation."""

    spec: NodeSpec
    token: str = field(repr=False)
    run_secret: str = field(repr=False)
    controller_token: str = field(repr=False)
    """Empty but on the trainer's head node."""
    host: str

    @property
    def run_dir(self) -> Path:
        """The run's store."""
        return Path(self.spec.run_dir)


def read_identity(directory: Path, role: Role, environment: Mapping[str, str]) -> Identity:
    """Read `node.json` and the secrets. Raises ConfigError that names what is missing or wrong."""
    path = directory / SPEC_FILE
    try:
        spec = NodeSpec.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: not the specification of a node: {error}") from error
    if spec.role is not role:
        raise ConfigError(f"{path}: this is a {spec.role} node, started as {role}")
    if missing := [name for name in (NODE_TOKEN, RUN_SECRET) if not environment.get(name)]:
        raise ConfigError(f"{path}: {', '.join(missing)} must be set in the environment")
    return Identity(
        spec=spec,
        token=environment[NODE_TOKEN],
        run_secret=environment[RUN_SECRET],
        controller_token=environment.get(CONTROLLER_TOKEN, ""),
        host=environment.get(HOST, "127.0.0.1"),
    )


def child_environment(environment: Mapping[str, str], keep: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a child's environment: no secret but those it needs, and one thread where the default is all cores."""
    hidden = set(SECRETS) - set(keep)
    kept = {name: value for name, value in environment.items() if name not in hidden}
    return {"OMP_NUM_THREADS": "1"} | kept


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
