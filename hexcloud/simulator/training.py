"""Training: the run as the coordinator on the trainer's head knows it. Samples pass at the rate of the live fleet."""

from dataclasses import dataclass, field

from hexcloud.domain.command import CHECKPOINT_EVERY
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Role


@dataclass
class Training:
    """State of the run. A head that starts begins an epoch at the last checkpoint and knows no other node."""

    head: NodeId = field(default=NodeId(""))
    steps: int = 0
    samples_per_step: int = 1
    epoch: int = -1
    has_trained: bool = False
    """Has there been a step under the present head?"""
    samples: float = 0.0
    checkpoint_version: int = 0
    admitted: dict[NodeId, tuple[str, Role]] = field(default_factory=dict)
    """Node -> SHA-256 of its token, and as what it may register."""
    run_until_wall_s: float | None = None
    """The spend lease that heartbeats carry."""
    done_at_s: float | None = None
    """When the last checkpoint and the output are on disk, run clock; None until they are begun."""
    is_done: bool = False
    first_step_wall_s: float | None = None
    last_step_wall_s: float | None = None

    @property
    def version(self) -> int:
        """Published training batches."""
        return min(self.steps, int(self.samples / self.samples_per_step + 1e-9))

    @property
    def is_over(self) -> bool:
        """Is there nothing left to generate for?"""
        return self.is_done or 0 < self.steps <= self.version

    @property
    def phase(self) -> RunPhase:
        """Where the run is."""
        if self.is_done:
            return RunPhase.DONE
        return RunPhase.TRAINING if self.has_trained else RunPhase.STARTING

    def recover(self, head: NodeId, steps: int, samples_per_step: int) -> None:
        """Begin an epoch on a new head."""
        self.head = head
        self.steps, self.samples_per_step = steps, samples_per_step
        self.begin_anew()
        self.has_trained = False
        self.admitted.clear()
        self.run_until_wall_s, self.done_at_s = None, None

    def begin_anew(self) -> None:
        """Begin an epoch at the last checkpoint: the state is lost."""
        self.epoch += 1
        self.samples = float(self.checkpoint_version * self.samples_per_step)

    def train(self, samples: float, wall_s: float) -> None:
        """Pass samples through the trainer until `wall_s`."""
        before = self.version
        self.samples += samples
        if self.version > before:
            self.has_trained = True
            self.first_step_wall_s = self.first_step_wall_s or wall_s
            self.last_step_wall_s = wall_s
            self.checkpoint_version = max(self.checkpoint_version, self.version // CHECKPOINT_EVERY * CHECKPOINT_EVERY)

    def checkpoint(self) -> None:
        """Write the last checkpoint and say `done`."""
        self.checkpoint_version, self.is_done = self.version, True
