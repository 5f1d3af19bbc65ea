"""Command: what a node must run. NodeSpec: the file that tells a node who it is."""

from pydantic import Field

from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.task import TaskSpec
from hexcloud.domain.training import TrainingSpec

NODE_FILE = "node.json"
"""Name of the NodeSpec's file in a node's directory."""
CERTIFICATE_FILE = "coordinator.pem"
"""Name, there, of the certificate that a trainer's head shows; its key is a secret of the environment."""
CHECKPOINT_EVERY = 20
"""Steps between two checkpoints of the trainer."""


class Emulation(Frozen):
    """How a local process stands in for a rented machine. One scale drives everything: the run clock.

    One local sample stands for one sample of the planned workload, in fast motion: `clock_scale` run seconds pass per
    wall second, so a node whose offer is worth r samples/s may make r * clock_scale samples per wall second.
    """

    clock_scale: float
    samples_per_s: float
    """Cap of this node, samples per WALL second."""
    link_bytes_per_s: float | None = None
    """Cap on weight transfers to this node, real bytes per wall second."""
    link_latency_ms: float = 0.0
    """One way, wall milliseconds, of every transfer to this node."""


def run_store(store: str, run_id: RunId) -> str:
    """Return the URL of one run's part of the user's store; empty for no store."""
    return f"{store.rstrip('/')}/{run_id}" if store else ""


class NodeSpec(Frozen):
    """Who a node is and what it does; written to its directory before it starts. Holds no secret."""

    run_id: RunId
    node_id: NodeId
    slot: SlotName
    role: Role
    task: TaskSpec
    weights: str | None = None
    """Hugging Face folder of the model that is trained; None: the task's own tiny policy, untrained."""
    seed: int
    slots: int
    """Samples that run at once (rollout), over all replicas."""
    engine: EngineKind = EngineKind.EMBEDDED
    """What generates (rollout)."""
    tp: int = 1
    """GPUs of one replica of the engine (rollout)."""
    replicas: int = 1
    """Engines of the machine (rollout); a process that stands in for a machine runs one."""
    samples_per_step: int
    group_size: int
    eta: int
    steps: int
    run_dir: str
    """Folder of pointer file, checkpoints and metrics as this node sees it."""
    store: str = ""
    """URL of the run's own part of an object store, by which nodes without a common folder meet: `run_dir` is then the
    node's own and what others need of it is mirrored there. Empty: all nodes see the same `run_dir`."""
    weights_stores: dict[str, str] = Field(default_factory=dict)
    """`cloud/region` -> URL of the run's own part of a store there, which the head fills with weights for nodes there.
    """
    ca_pem: str = ""
    """The run's certificate authority (public). Whoever is dialled beyond this machine must prove itself by it."""
    coordinator_port: int = 0
    """Where the head listens; 0: any free port."""
    region: str = ""
    """`cloud/region` of the machine: nodes of one region pass weights on to each other. Empty: not known."""
    notice: str = ""
    """Whose metadata tell of an interruption: `aws`, `gcp`, or empty for nobody's."""
    private_env: tuple[str, ...] = ()
    """Names of variables that this node's program needs (keys of the store) and its children must not see."""
    output: str
    """Where the final HF directory goes."""
    tokens_per_sample: float
    """Planned workload; only for the tok/s in metrics."""
    replace_zero_variance: bool = False
    """Generate another group in the place of one whose samples all earned the same."""
    checkpoint_every: int = CHECKPOINT_EVERY
    training: TrainingSpec = TrainingSpec()
    gang: int = 1
    """Machines of the trainer, or of the replica, as planned."""
    rank: int = 0
    """Among those of the replica; its head, which alone generates, has 0."""
    head: SlotName | None = None
    """As `Slot.head`."""
    replica_port: int = 0
    """Where the head of a replica leads the other machines, on their own network; 0: there is no engine over them."""
    ranks: int = 1
    """Processes of the trainer on each of them."""
    rank_tflops: float | None = None
    """Peak of the GPU that a rank has, 1e12 FLOP/s in bf16; None where it is not known or emulated."""
    spend_lease_s: float = 60.0
    """Wall seconds a node goes on without a renewed spend lease."""
    heartbeat_s: float = 1.0
    emulation: Emulation | None = None


class Command(Frozen):
    """What the provisioner starts on a machine. Secrets travel as environment only and are never logged or stored."""

    image: str | None
    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: dict[str, str]
    files: dict[str, str]
    """Name in the node's directory -> content."""

    def __repr__(self) -> str:
        """Show everything but secrets."""
        return f"Command(argv={self.argv}, files={sorted(self.files)}, secrets={sorted(self.secrets)} hidden)"

    __str__ = __repr__
