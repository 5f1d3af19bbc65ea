"""Machine: one rented machine of the simulated cloud, and the process on it."""

from dataclasses import dataclass

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Notice
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role


@dataclass
class Machine:
    """Times are run-clock seconds but for those that say wall."""

    offer: Offer
    spec: NodeSpec
    token: str
    is_head: bool
    """Its process is the coordinator: it was given the controller's token."""
    launched_s: float
    boots_s: float
    """When its process starts."""
    run_until_wall_s: float
    """The spend lease: past it the machine ends itself."""
    engine_samples_per_wall_s: float | None = None
    """What its engines really make when they are full; None: what the plan says."""
    made_samples: float = 0.0
    """Since its process started."""
    is_registered: bool = False
    is_draining: bool = False
    silent_since_s: float | None = None
    ends_s: float | None = None
    """When its end, once asked for, is carried out."""
    ended_s: float | None = None
    cause: str = ""
    notice: Notice | None = None
    """What its metadata endpoint says of its near end."""

    @property
    def id(self) -> NodeId:
        """The node's id: the machine's tag."""
        return self.spec.node_id

    @property
    def exists(self) -> bool:
        """Does it exist and bill?"""
        return self.ended_s is None

    @property
    def samples_per_wall_s(self) -> float:
        """What it makes when it is full (rollout) or trains (head) while it works."""
        works = self.exists and self.is_registered and self.silent_since_s is None
        if not works or self.spec.emulation is None:
            return 0.0
        real = self.engine_samples_per_wall_s if self.is_rollout() and self.spec.rank == 0 else None
        return self.spec.emulation.samples_per_s if real is None else real

    @property
    def is_going(self) -> bool:
        """Was it told to leave, or will the cloud take it?"""
        return self.is_draining or self.notice is not None

    def is_rollout(self) -> bool:
        """Does it make samples?"""
        return self.spec.role is Role.ROLLOUT

    def end(self, at_s: float, cause: str) -> None:
        """Stop existing and billing."""
        self.ended_s, self.cause, self.is_registered = at_s, cause, False
