"""What nodes, coordinator, trainer and controller say to each other over HTTP (JSON).

Rollout nodes and the trainer process dial the coordinator; nothing dials them. Every call carries
`Authorization: Bearer TOKEN`: a node's own token, or the controller's.
"""

from enum import StrEnum

from pydantic import Field

from hexcloud.domain.bounds import Count, Line, Measured, Number, Seconds, Slots, Text
from hexcloud.domain.commit import LeaseRenewal as LeaseRenewal
from hexcloud.domain.commit import Partial as Partial
from hexcloud.domain.commit import PartialCommit as PartialCommit
from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.delta import WeightsManifest as WeightsManifest
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Message
from hexcloud.domain.lease import Lease, LeaseId
from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.plan import Role
from hexcloud.domain.sample import Group, Sample
from hexcloud.domain.world import GangPlan, World

POINTER_FILE = "coordinator.json"
"""Name of the Pointer's file in the run's folder."""


class Pointer(Message):
    """The file by which everybody finds the coordinator. `signature` is HMAC-SHA256 over the rest."""

    run_id: RunId
    url: str
    epoch: int
    signature: str


INTERRUPTION = "interruption notice"
"""Cause of a Notice after which the cloud takes the machine away."""
REBALANCE = "rebalance recommendation"
"""Cause of a Notice by which the cloud only warns: the machine is likelier than before to be taken."""


class Notice(Message):
    """The cloud's word, heard on the machine itself, that the machine will be or may be taken away."""

    cause: Line
    """INTERRUPTION or REBALANCE."""
    until_s: Seconds
    """The machine is there until then at least, wall seconds since the epoch."""
    detail: Line = ""
    """What the cloud said, such as `terminate`."""


class Startup(Message):
    """How long a machine took, in parts that it measured itself; the rest is the provider's."""

    setup_s: Seconds = 0.0
    """Installing what the node program needs."""
    program_s: Seconds = 0.0
    """From the start of the node program to its first try to register."""


class RelayDoor(Message):
    """Where a rollout node passes weights on to its neighbours."""

    address: Line
    """`host:port`."""
    certificate: Text = ""
    """What it proves itself by (PEM, its own signature): whoever dials it takes this one and no other. Empty: it is
    reached on this machine only."""


class Register(Message):
    """POST /register: a node says it is there, in the role that it was admitted for. Idempotent."""

    node_id: NodeId
    role: Role
    slots: Slots
    address: Line
    """`host:port` where the node answers probes."""
    startup: Startup = Startup()
    region: Line = ""
    """`cloud/region` of its machine; empty: not known."""
    relay: RelayDoor | None = None


class Heartbeat(Message):
    """POST /heartbeat: what a node is doing."""

    node_id: NodeId
    epoch: Number
    version: Number
    """Weights loaded; -1 before the first load."""
    running: Count
    """Samples being generated now."""
    generated_tokens: Count
    """Since the node started."""
    leases: tuple[tuple[LeaseId, Number], ...] = ()
    """(lease, attempt) held now; used after a recovery."""
    is_paused: bool = False
    """Does the engine generate nothing now, because it starts, takes new weights or is being mended?"""
    notice: Notice | None = None
    """The cloud's last word about this machine; None as long as it says nothing."""


class Orders(Message):
    """The answer to register and heartbeat: what the node must do."""

    epoch: int
    latest: WeightsManifest | None
    run_until_s: float
    """Spend lease, wall seconds since the epoch: past it the node checkpoints, exits and ends itself."""
    drain: bool = False
    """Finish what you hold, take nothing new, then exit."""
    stop: bool = False
    """The run is over: exit now."""
    abort: tuple[LeaseId, ...] = ()
    """Leases that ended elsewhere."""
    probe: tuple[str, ...] = ()
    """Addresses (`host:port`) to measure and report with POST /links."""
    world: World | None = None
    """Of a machine of the trainer: the ranks that the trainer shall have."""


class WeightsWays(Message):
    """GET /ways/{epoch}/{version}: how the node that asks may get to a version; it takes the cheapest."""

    deltas: tuple[WeightsDelta, ...] = ()
    """All that are served and may be a step to the version, each at `GET /deltas/{epoch}/{base}/{result}`. The whole
    file is served beside them."""
    relay: RelayDoor | None = None
    """The neighbour whose copy crosses the region's link for all; without one, or when it fails: the coordinator."""
    relay_key: str = ""
    """The secret of the run's relays, by which they know each other's nodes. Another one after a node was revoked."""
    has_store: bool = False
    """Does the coordinator copy weights into a store of the node's region? It comes before the relay then."""


class PlaceRequest(Message):
    """POST /places: where in its region's store does a node find a file? 404: it does not; take another way.

    Which region that is, it said when it first registered: none can speak of another's store.
    """

    node_id: NodeId
    sha256: Line
    """Of a version's file or of a delta."""


class Place(Message):
    """The answer."""

    url: str = ""
    """What whoever has it may read, so it is as secret as the weights. Empty: on its way, ask again."""


class PlaceTrouble(Message):
    """POST /places/trouble: a file was not where it should be, or not what it should be."""

    node_id: NodeId
    sha256: Line
    reason: Text
    """Without the place's URL."""


class LeaseRequest(Message):
    """POST /leases: ask for work."""

    node_id: NodeId
    epoch: Number
    version: Number
    want: Slots


class LeaseGrant(Message):
    """The answer: leases, or a version to load first, or neither (full; ask again after `retry_s`)."""

    leases: tuple[Lease, ...] = ()
    load: WeightsManifest | None = None
    retry_s: float = 0.1


class Submission(Message):
    """POST /samples: finished samples. Idempotent by (lease, attempt)."""

    node_id: NodeId
    samples: tuple[Sample, ...]


class LinkReport(Message):
    """POST /links: measured over real sockets, one way."""

    node_id: NodeId
    target: Line
    """`host:port` as told, so that the coordinator can name the peer."""
    gb_per_s: Measured
    latency_ms: Measured


class Batch(Message):
    """GET /batch (long poll, trainer only): the next training batch, or `groups` empty when none is ready yet."""

    version: int
    """Current version v; training on it makes v + 1."""
    groups: tuple[Group, ...] = ()
    cursor: int = 0
    """Prompts drawn when the groups were taken: where a checkpoint that holds them goes on."""
    done: bool = False
    """All steps are trained: finish."""
    checkpoint: bool = False
    """Write a checkpoint before the next step (budget, drain)."""
    rewrite: bool = False
    """The file of the current version is damaged: write it anew, to the bit."""
    world: World | None = None
    """The ranks that the trainer shall have."""


class DeltaReport(Message):
    """A delta on disk that leads to a published version."""

    path: str
    """On the trainer's node."""
    delta: WeightsDelta


class StepReport(StepNumbers):
    """POST /publish (trainer only): a version is on disk; numbers of the step that made it."""

    epoch: Number
    version: Number
    path: str
    """The safetensors file, on the trainer's node."""
    sha256: str
    size: Count
    delta: DeltaReport | None = None
    """From the version before, where that is fewer bytes."""
    busy_s: Seconds = 0.0
    """Wall seconds of work in this step (emulated compute included)."""
    wait_s: Seconds = 0.0
    """Wall seconds spent waiting for the batch."""
    tokens_per_s: float = 0.0
    """Tokens per wall second of work."""
    mfu: float | None = None
    """Share of the GPUs' peak that the model's own arithmetic is; None where the peak is not known."""
    ranks: Slots = 1
    """Processes that trained together."""
    checkpoint_version: Number = -1
    """Newest version with a whole checkpoint; -1 before the first."""


class Rendezvous(Message):
    """POST /rendezvous (trainer only): where the other ranks of a world meet rank 0, and how far they are."""

    generation: Number
    store: Line
    """`host:port` on the gang's network."""
    is_begun: bool = False
    """All who join are there, and the state is about to move."""
    is_formed: bool = False


class Heeded(Message):
    """The answer to a Rendezvous."""

    is_wanted: bool
    """Is this world still wanted? One that is not must not be begun: its machines may be told of another already."""


class Evaluation(Message):
    """POST /evaluation (trainer only): accuracy at temperature 1 on held-out prompts."""

    when: str
    """`before` or `after` RL."""
    accuracy: float


class NodeView(Message):
    """A node as the coordinator knows it."""

    node_id: NodeId
    role: Role
    silent_s: float
    """Wall seconds since its last word."""
    version: int
    running: int
    slots: int
    tokens_per_s: float
    """Recent local generation rate."""
    address: str = ""
    drained: bool = False
    """It was told to drain and holds nothing any more."""
    heartbeat_at_s: float | None = None
    """When its last heartbeat came, on the coordinator's wall clock: the moment of what that told (version, running,
    tokens, pause). Other words come in between. None before the first."""
    generated_tokens: int = 0
    """Since the node started: response tokens of finished generations."""
    is_paused: bool = False
    startup: Startup = Startup()
    notice: Notice | None = None
    trouble: str = ""
    """Why this worker gets no work any more although it speaks; whoever rents it should replace it."""


class RunPhase(StrEnum):
    """Where the run is."""

    STARTING = "starting"
    TRAINING = "training"
    DONE = "done"


class RunView(Message):
    """GET /status: the run as the coordinator knows it. Times are wall seconds."""

    run_id: RunId
    head: NodeId = NodeId("")
    """The trainer's head node, on which this coordinator runs."""
    phase: RunPhase
    epoch: int
    version: int
    steps: int
    trained_samples: int
    dropped_samples: int
    """Given up because of age, or made by versions that a recovery abandoned."""
    filtered_samples: int = 0
    """Of groups whose rewards were all equal, replaced."""
    first_step_at_s: float | None
    last_step_at_s: float | None
    staleness_histogram: dict[int, int]
    """Age at training of each trained sample's oldest token -> samples."""
    reward: float
    """Mean of recent steps."""
    samples_per_wall_s: float
    """Recent rate of trained samples."""
    overlap_share: float
    """Share of time since the first step in which trainer and at least one rollout node worked at once."""
    trainer_wait_s: float
    """Total seconds the trainer waited since the first step."""
    outstanding: int
    checkpoint_version: int
    """Newest version that a new head can go on from: of a run with a store, in the store."""
    store_trouble: str = ""
    """Why the run's store cannot be written at present; training goes on meanwhile. Empty: it can, or there is none."""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    sent_bytes: dict[NodeId, int] = Field(default_factory=dict)
    """Weights that this coordinator has sent to each node, also to those that have left. Bytes."""
    stored_bytes: dict[str, int] = Field(default_factory=dict)
    """The same, to the store of each region."""
    stores_trouble: dict[str, str] = Field(default_factory=dict)
    """Region -> why weights do not go through its store at present."""
    nodes: tuple[NodeView, ...] = ()
    links: tuple[LinkReport, ...] = ()


class Renewal(Message):
    """POST /control/renew (controller only): the fleet may run until then."""

    run_until_s: float
    gang: GangPlan | None = None
    """What the trainer becomes with its next change of size; None: nothing new."""


class DrainRequest(Message):
    """POST /control/drain (controller only)."""

    node_id: NodeId


class Admit(Message):
    """POST /control/admit (controller only): this node may register with this token. Also revokes lost nodes."""

    node_id: NodeId
    token_sha256: str
    role: Role = Role.ROLLOUT
    """It registers as this and as nothing else: the trainer's machines are told where its ranks meet."""
    revoke: tuple[NodeId, ...] = ()


class StopRequest(Message):
    """POST /control/stop (controller only): checkpoint, write the output, say `done`."""

    reason: str
