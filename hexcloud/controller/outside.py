"""What a controller is given: the ports, the run's secrets, its patience in seconds, and how nodes are emulated."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hexcloud.domain.fleet import NodeId
from hexcloud.ports import Authority, Clock, Coordinator, MarketSource, Provisioner, Store

SETUP = "setup"
"""Phase of a launch in which the machines exist and are being set up; before it is `provision`."""


@dataclass(frozen=True)
class RunSecrets:
    """Every secret of a run, derived from one key, so that a restarted controller has them and no store holds them."""

    key: bytes = field(repr=False)
    """At least 16 random bytes, kept in a file that only its owner can read."""

    def node_token(self, node_id: NodeId) -> str:
        """Return the bearer token of one node."""
        return self._derive(f"node:{node_id}")

    def node_token_sha256(self, node_id: NodeId) -> str:
        """Return what the coordinator may know of a node's token."""
        return hashlib.sha256(self.node_token(node_id).encode()).hexdigest()

    @property
    def run_secret(self) -> str:
        """The HMAC key of the pointer file."""
        return self._derive("pointer")

    @property
    def controller_token(self) -> str:
        """The bearer token of the controller on `/control/*`."""
        return self._derive("controller")

    def _derive(self, purpose: str) -> str:
        return hmac.new(self.key, purpose.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class EmulationPlan:
    """How local processes stand in for rented machines; None in `Ports` when the machines are real."""

    clock_scale: float
    """Run seconds per wall second."""
    local_weight_bytes: float
    """Bytes of the local model's weights: transfers shrink with them."""


LEASE_STARTUPS = 2.5
"""Start-ups that a spend lease on real machines lasts for."""


@dataclass(frozen=True)
class Timing:
    """The controller's patience. Wall seconds, but for `stall_steps`."""

    poll_s: float = 1.0
    spend_lease_s: float = 60.0
    """How long the fleet runs on without word from a controller."""
    provision_s: float = 300.0
    """From the first call to machines that exist, at most; what is later is given up and its pool blocked."""
    setup_s: float = 300.0
    """From there to the start of the node's program, at most."""
    register_s: float = 900.0
    """From there to the first heartbeat, at most."""
    visible_s: float = 15.0
    """A new machine may be missing from the provider's list for this long (AWS: about a second)."""
    silent_rollout_s: float = 15.0
    silent_trainer_s: float = 60.0
    """Longer than for rollout: a trainer is silent while it writes a checkpoint."""
    drain_s: float = 30.0
    """From the order to drain to the end by force."""
    hold_s: float = 900.0
    """How long a machine is kept for replacements that do not come up."""
    checkpoint_s: float = 60.0
    """From the order to stop to `done`, at most."""
    teardown_s: float = 15.0
    """From the order to end a machine to the end of its bill."""
    self_end_s: float = 0.0
    """From the lapse of the spend lease to the order, given by the machine itself, that ends it: the graces of its
    program, and what the watchdog on it waits. With a living controller it is not needed."""
    stall_s: float = 120.0
    """Without a step for this long a run stalls, or for `stall_steps` planned steps if that is longer; after the same
    span again it is ended."""
    stall_steps: float = 60.0
    """In planned steps, not in seconds."""
    alarm_s: float = 300.0
    """A machine that still bills so long after its end was asked for is a matter for the user."""

    @classmethod
    def of_clouds(cls, startup_s: float) -> "Timing":
        """Return the patience with real clouds, whose machines take `startup_s` from the request to the first word.

        The lease is longer than the trainer's replacement takes, since nobody can renew it meanwhile.
        """
        detected_s = 180.0
        return cls(
            poll_s=5.0,
            spend_lease_s=max(900.0, LEASE_STARTUPS * startup_s + detected_s),
            provision_s=max(900.0, 3.0 * startup_s),
            setup_s=max(1800.0, 3.0 * startup_s),
            register_s=max(600.0, 2.0 * startup_s),
            visible_s=60.0,
            silent_rollout_s=60.0,
            silent_trainer_s=detected_s,
            drain_s=110.0,
            hold_s=3600.0,
            checkpoint_s=300.0,
            teardown_s=120.0,
            self_end_s=480.0,
            stall_s=900.0,
            alarm_s=600.0,
        )

    @property
    def start_s(self) -> float:
        """From the first call to the first heartbeat, at most."""
        return self.provision_s + self.setup_s + self.register_s

    def bound_s(self, phase: str) -> float:
        """Return how long a phase of a launch may last."""
        return self.setup_s if phase == SETUP else self.provision_s


@dataclass(frozen=True)
class Ports:
    """Everything outside that a controller touches."""

    clock: Clock
    market: MarketSource
    provisioner: Provisioner
    coordinator: Callable[[], Coordinator]
    """Finds the coordinator by the run's pointer. Raises EngineError while there is none."""
    store: Store
    secrets: RunSecrets
    emulation: EmulationPlan | None = None
    authority: Authority | None = None
    """The run's certificates; None when no node is beyond this machine."""
    pass_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the machines need, with their values: secrets all of them."""
    timing: Timing = Timing()
    python: str = "python"
    """Interpreter that starts a node, as its machine knows it."""
