"""NodeTable: what the coordinator has heard from each node, whom it told to drain, and who should probe whom."""

import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import (
    INTERRUPTION,
    Heartbeat,
    LinkReport,
    NodeView,
    Notice,
    Register,
    RelayDoor,
    Startup,
)
from hexcloud.domain.plan import Role

RATE_WINDOW_S = 10.0
"""A node's token rate is over this many seconds of heartbeats."""
MAX_PEERS = 8
"""Links measured per node, trainers first: all pairs of a large fleet would keep it busy with probes."""
MAX_STRIKES = 3
"""Times in a row that a worker's leases come to nothing before it counts as broken: its machine, not its luck."""
SHARE_SLACK = 2.0
"""A worker may hold this multiple of its share of all that may be under way, by its measured speed."""
PROBE_AGAIN_S = 20.0
"""A probe that brought no report is ordered again after this."""


@dataclass(slots=True)
class KnownNode:
    """One node that has registered. Times are wall seconds."""

    id: NodeId
    role: Role
    slots: int
    address: str
    heard_at_s: float
    region: str = ""
    relay: RelayDoor | None = None
    version: int = -1
    running: int = 0
    is_paused: bool = False
    is_draining: bool = False
    is_silent: bool = False
    """It counts as lost until it speaks again."""
    strikes: int = 0
    struck_at_s: float = float("-inf")
    made_at_s: float = float("-inf")
    """When it last gave tokens of its own making that were believed."""
    trouble: str = ""
    """Why it gets no work any more."""
    is_fast: bool = True
    """Is it among the faster half, by its tokens per second and slot? True as long as nothing was measured."""
    share: float = 1.0
    """Of the tokens that all workers make; 1 as long as nothing was measured."""
    startup: Startup = field(default_factory=Startup)
    notice: Notice | None = None
    generated: deque[tuple[float, int]] = field(default_factory=deque)
    """(when, tokens since the node started), oldest first."""
    probed_at_s: dict[str, float] = field(default_factory=dict)

    @property
    def tokens_per_s(self) -> float:
        """Recent generation rate; 0 before the second heartbeat."""
        if len(self.generated) < 2:
            return 0.0
        (from_s, before), (to_s, after) = self.generated[0], self.generated[-1]
        return max(0, after - before) / (to_s - from_s) if to_s > from_s else 0.0

    @property
    def is_going(self) -> bool:
        """Was it told to leave, or will the cloud take it?"""
        return self.is_draining or (self.notice is not None and self.notice.cause == INTERRUPTION)

    def strike(self, reason: str, now_s: float, every_s: float) -> bool:
        """Note that leases of this worker came to nothing; return whether it counts as broken from now on.

        Those that it got at about one time, and lose so, are one failure.
        """
        if now_s - self.struck_at_s < every_s:
            return False
        self.strikes, self.struck_at_s = self.strikes + 1, now_s
        is_new = self.strikes >= MAX_STRIKES and not self.trouble
        if is_new:
            self.trouble = f"{reason}; {self.strikes} times in a row"
        return is_new

    def most(self, most_outstanding: int, least: int) -> int:
        """Return how many leases it may hold: what it makes of them is waited for by all."""
        return max(least, math.ceil(SHARE_SLACK * self.share * most_outstanding))

    def note(self, message: Heartbeat, now_s: float) -> None:
        """Keep what a heartbeat says."""
        self.version, self.running, self.is_paused = message.version, message.running, message.is_paused
        self.notice = message.notice
        self.generated.append((now_s, message.generated_tokens))
        while now_s - self.generated[0][0] > RATE_WINDOW_S:
            self.generated.popleft()

    def forget_words(self) -> None:
        """Know nothing any more of what it said of itself in heartbeats and at its start."""
        self.version, self.running, self.notice, self.startup = -1, 0, None, Startup()
        self.generated.clear()


class NodeTable:
    """All registered nodes. A node leaves it only when the controller revokes it."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, KnownNode] = {}
        self._links: dict[tuple[NodeId, str], LinkReport] = {}
        self._draining: set[NodeId] = set()
        self.relay_key = secrets.token_hex(16)
        """By which relays know the run's nodes; another one once a node is of the run no more."""

    def __iter__(self) -> Iterator[KnownNode]:
        return iter(self._nodes.values())

    @property
    def links(self) -> tuple[LinkReport, ...]:
        """The last measurement of each link."""
        return tuple(self._links.values())

    def get(self, node_id: NodeId) -> KnownNode | None:
        """Return a registered node."""
        return self._nodes.get(node_id)

    def register(self, message: Register, now_s: float) -> KnownNode:
        """Know a node, or know it better. May be repeated."""
        node = KnownNode(message.node_id, message.role, message.slots, message.address, now_s, startup=message.startup)
        node.region, node.relay = message.region, message.relay
        known = self._nodes.get(node.id)
        if known is not None:
            node.version, node.running, node.generated = known.version, known.running, known.generated
            node.is_paused, node.probed_at_s = known.is_paused, known.probed_at_s
            node.strikes, node.struck_at_s, node.trouble = known.strikes, known.struck_at_s, known.trouble
            node.made_at_s = known.made_at_s
            # The first word told where the machine is, and how it came up.
            node.region, node.startup, node.notice = known.region, known.startup, known.notice
        node.is_draining = node.id in self._draining
        self._nodes[node.id] = node
        return node

    def forget(self, node_id: NodeId) -> None:
        """Know a node no more."""
        node = self._nodes.pop(node_id, None)
        self.relay_key = secrets.token_hex(16)
        self._draining.discard(node_id)
        address = node.address if node else ""
        gone = [key for key in self._links if key[0] == node_id or key[1] == address]
        for key in gone:
            del self._links[key]

    def drain(self, node_id: NodeId) -> None:
        """Let a node take nothing new, also if it has yet to register."""
        self._draining.add(node_id)
        node = self._nodes.get(node_id)
        if node is not None:
            node.is_draining = True

    def silence(self, now_s: float, after_s: float) -> tuple[NodeId, ...]:
        """Mark the nodes that have said nothing for `after_s` and return those that are newly silent."""
        silent = [node for node in self if not node.is_silent and now_s - node.heard_at_s > after_s]
        for node in silent:
            node.is_silent = True
        return tuple(node.id for node in silent)

    def weigh(self, rate_of: Callable[[KnownNode], float]) -> None:
        """Compare the workers' measured speeds; `rate_of` looks at each one's alone."""
        rates = {node.id: rate_of(node) for node in self if node.role is Role.ROLLOUT and not node.is_silent}
        measured = {node_id: rate for node_id, rate in rates.items() if rate > 0}
        if not measured:
            return
        middle = median(rate / max(1, self._nodes[node_id].slots) for node_id, rate in measured.items())
        total = sum(measured.values())
        for node_id, rate in measured.items():
            node = self._nodes[node_id]
            node.is_fast, node.share = rate / max(1, node.slots) >= middle, rate / total

    def relay_for(self, node: KnownNode, head_region: str) -> RelayDoor | None:
        """Return the neighbour from which a node takes weights: of those in a region away from the head, the first.

        None for that one itself, and where nobody can be spared a copy over the region's link.
        """
        if not node.region or node.region == head_region:
            return None
        for peer in self:  # in the order in which they came: the first one's disk has most
            if peer.region == node.region and peer.role is Role.ROLLOUT and not (peer.is_silent or peer.is_draining):
                if peer.id == node.id:
                    return None
                if peer.relay is not None:
                    return peer.relay
        return None

    def note_link(self, report: LinkReport) -> None:
        """Keep a measurement of a link that its node was told to measure."""
        node = self._nodes.get(report.node_id)
        if node is None or report.target not in node.probed_at_s:
            return
        self._links[(report.node_id, report.target)] = report

    def probes(self, node: KnownNode, now_s: float) -> tuple[str, ...]:
        """Return at most one address for a node to measure next, so that probes don't crowd out weights."""
        peers = [peer for peer in self if peer.id != node.id and not peer.is_silent]
        peers.sort(key=lambda peer: peer.role is not Role.TRAINER)
        for peer in peers[:MAX_PEERS]:
            asked_at_s = node.probed_at_s.get(peer.address, float("-inf"))
            if (node.id, peer.address) not in self._links and now_s - asked_at_s > PROBE_AGAIN_S:
                node.probed_at_s[peer.address] = now_s
                return (peer.address,)
        return ()

    def view(self, node: KnownNode, held: int, now_s: float) -> NodeView:
        """Return a node, which holds so many leases, as the controller sees it."""
        told_at_s, tokens = node.generated[-1] if node.generated else (None, 0)
        return NodeView(
            node_id=node.id,
            role=node.role,
            silent_s=max(0.0, now_s - node.heard_at_s),
            version=node.version,
            running=node.running,
            slots=node.slots,
            tokens_per_s=node.tokens_per_s,
            address=node.address,
            drained=node.is_draining and held == 0,
            heartbeat_at_s=told_at_s,
            generated_tokens=tokens,
            is_paused=node.is_paused,
            startup=node.startup,
            notice=node.notice,
            trouble=node.trouble,
        )
