"""Node and FleetState: what is rented now, as the provider and the nodes report it."""

from enum import StrEnum
from typing import NewType

from pydantic import Field

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName

RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
"""`run/slot/attempt` in tag-safe spelling; the provider's machine carries it as a tag."""


def node_id(run_id: RunId, slot: SlotName, attempt: int) -> NodeId:
    """Return the one spelling of a node's id."""
    return NodeId(f"{run_id}.{slot}.{attempt}")


class NodeStatus(StrEnum):
    """A node's life. It only moves downwards in this list; GONE is confirmed by the provider."""

    REQUESTED = "requested"
    """The intent is stored; the provider may or may not know it."""
    STARTING = "starting"
    """The provider has it; it has not registered yet."""
    READY = "ready"
    """It registered and heartbeats."""
    DRAINING = "draining"
    """It finishes what it holds and takes nothing new."""
    STOPPING = "stopping"
    """The end was asked of the provider; not confirmed yet. It still bills."""
    LOST = "lost"
    """It vanished or fell silent; to be ended and confirmed."""
    GONE = "gone"
    """The provider confirmed its end."""


DEFAULT_DISK_GIB = 256
"""What SkyPilot rents unasked."""

LIVE = frozenset({NodeStatus.REQUESTED, NodeStatus.STARTING, NodeStatus.READY, NodeStatus.DRAINING})
"""Statuses in which a node fills its slot or is on the way to."""


class Node(Frozen):
    """One rented machine."""

    id: NodeId
    run_id: RunId
    slot: SlotName
    attempt: int
    role: Role
    offer_id: OfferId
    status: NodeStatus
    requested_at_s: float
    """Run clock, seconds since the epoch."""
    usd_per_hour: float | None = None
    """Rent when it was asked for: what is known of its price once the market lists the offer no more."""
    ready_at_s: float | None = None
    gone_at_s: float | None = None
    cause: str = ""
    """Why it is lost, draining or gone."""
    rank: int = 0
    """Its place in its gang; a gang's head has 0."""
    gang: int = 1
    """Machines that were asked for in one call with it, itself included: they come up together or not at all."""
    head: SlotName | None = None
    """As `Slot.head`."""
    disk_gib: int = DEFAULT_DISK_GIB
    """Of its boot disk."""

    @property
    def unit(self) -> SlotName:
        """As `Slot.unit`."""
        return self.head or self.slot

    @property
    def is_joiner(self) -> bool:
        """Was it asked for alone, to join a gang that trains already?"""
        return self.rank > 0 and self.gang == 1


class Billed(Frozen):
    """A machine of a node, by the cloud's own word. Moments are wall seconds since the epoch."""

    node_id: NodeId
    from_s: float
    """When its bill began."""
    to_s: float | None = None
    """When its bill ended; None: it has not, or the cloud does not say when."""


THIS_COMPUTER = "this computer"
"""Where the machines of local runs are."""


class Rented(Frozen):
    """A machine that carries our tags, as whoever runs it lists it."""

    run: str
    """The run's name on its machines: its id, spelt as tags allow."""
    id: str
    """As the cloud names it."""
    place: str
    """`cloud/region/zone`."""
    instance_type: str
    nodes: tuple[str, ...] = ()
    """Slot and attempt (`rollout-3.1`) of the node that it is, or of its whole gang until each is told its own."""


class Look(Frozen):
    """What one account, or this computer, says of the machines that carry our tags."""

    machines: tuple[Rented, ...] = ()
    problems: dict[str, str] = Field(default_factory=dict)
    """Place (`aws`, `aws/eu-west-1`) -> why nothing is known of it."""


class MeasuredLink(Frozen):
    """What the probe measured between two slots, one way, in units of the planned (not the emulated) network."""

    source: SlotName
    target: SlotName
    gb_per_s: float
    latency_ms: float


class FleetState(Frozen):
    """All nodes of a run that the provider has not confirmed as gone."""

    nodes: tuple[Node, ...] = ()
    links: tuple[MeasuredLink, ...] = ()
    next_slot: int = 0
    """Lowest number that no slot of this run has had, so that no name is given twice."""
    sold_out: dict[OfferId, str] = Field(default_factory=dict)
    """Pools that refused us lately, with the reason: stock 0 for new machines, what runs may stay."""

    def live(self) -> tuple[Node, ...]:
        """Return the nodes that fill a slot or are on the way to."""
        return tuple(node for node in self.nodes if node.status in LIVE)
