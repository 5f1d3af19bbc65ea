"""Hands: single calls to provider and coordinator. Intent is stored before each; each typed error is met here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hexcloud.controller.commands import command_for
from hexcloud.controller.journal import Journal
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import Ports
from hexcloud.domain.errors import (
    CapacityError,
    CredentialsError,
    EngineError,
    NotYetError,
    ProvisionError,
    QuotaError,
    RateLimitError,
)
from hexcloud.domain.fleet import Node, NodeId, NodeStatus
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import ExecutionPlan, Slot, SlotName

BLOCK_S = 180.0
"""First block of a sold-out pool, run seconds; doubles with each refusal. Karpenter, too, waits 3 minutes."""
MAX_BLOCK_S = 3600.0
QUOTA_BLOCK_S = 3600.0
"""A limit changes by a ticket or by what else ends on the account: neither within minutes."""
MAX_TRIES = 3
"""Launches that fail for a reason nobody knows, or machines that never come up, before the next offer is tried."""
MAX_BACK_OFF_S = 60.0
SOLD_OUT = "sold out"
"""How the cause of a node begins that its pool refused for want of capacity."""


Gang = tuple[Node, ...]
"""Machines of one offer that are rented in one call, in rank order; often just one."""


@dataclass(frozen=True)
class Hands:
    """What one turn can do. Every method returns the node as stored."""

    ports: Ports
    memory: Memory
    seen: Seen
    journal: Journal

    def launch(self, gang: Gang, slots: Mapping[SlotName, Slot], plan: ExecutionPlan) -> Gang:
        """Rent the machines of stored intents, again and again until the provider has them all or refused."""
        if self._backs_off(gang[0].id):
            return gang
        offer = self.seen.market.offer(gang[0].offer_id)
        if offer is None:
            self.block(gang[0].offer_id, "no longer listed")
            return self._each(gang, lambda node: self.end(node, "no longer listed"))  # it may be on the way
        self.memory.launched_at |= {node.id: self.seen.wall_s for node in gang}
        commands = tuple(command_for(node, slots[node.slot], plan, self.seen, self.ports) for node in gang)
        try:
            self.ports.provisioner.launch(gang, offer, commands)
        except ProvisionError as error:
            return self._met(error, gang, offer)
        self._forget(gang[0].id)
        return self._each(gang, lambda node: self.keep(node, node.model_copy(update={"status": NodeStatus.STARTING})))

    def end(self, node: Node, cause: str) -> Node:
        """Ask for the end of a machine, again and again until the provider no longer lists it."""
        stopping = node.model_copy(update={"status": NodeStatus.STOPPING, "cause": node.cause or cause})
        if stopping != node:
            self.keep(node, stopping)
        self.terminate(node.id)
        return stopping

    def terminate(self, node_id: NodeId) -> None:
        """Ask the provider to end a machine; a refusal is asked again after a back-off."""
        if self._backs_off(node_id):
            return
        try:
            self.ports.provisioner.terminate(node_id)
        except CredentialsError as error:
            self.memory.credentials = str(error)
        except ProvisionError:
            self._back_off(node_id)

    def drain(self, node: Node, cause: str) -> Node:
        """Tell a node to finish what it holds and to exit; repeated until it has, or its time is over."""
        memory, wall_s = self.memory, self.seen.wall_s
        since = memory.drained_at.setdefault(node.id, wall_s)
        draining = node.model_copy(update={"status": NodeStatus.DRAINING, "cause": node.cause or cause})
        if draining != node:
            self.keep(node, draining)
        view = self.seen.node_view(node.id)
        if (view and view.drained) or wall_s - since > self.ports.timing.drain_s:
            return self.end(draining, cause)
        self._tell_to_drain(node.id)
        return draining

    def keep(self, old: Node, new: Node) -> Node:
        """Store a node and its event."""
        self.journal.save(old, new)
        return new

    def block(self, offer_id: OfferId, reason: str) -> None:
        """Keep away from a pool, longer each time, and ask for a re-plan."""
        memory = self.memory
        memory.refusals[offer_id] = memory.refusals.get(offer_id, 0) + 1
        for_s = min(BLOCK_S * 2 ** (memory.refusals[offer_id] - 1), MAX_BLOCK_S)
        self._block((offer_id,), for_s, reason)

    def _tell_to_drain(self, node_id: NodeId) -> None:
        if self.seen.coordinator is None:
            return
        try:
            self.seen.coordinator.drain(node_id)
        except EngineError:
            return  # it is asked again next turn, and ended by force in the end

    def _met(self, error: ProvisionError, gang: Gang, offer: Offer) -> Gang:
        """Do with each kind of refusal what it is named for."""
        match error:
            case CapacityError():
                return self._refused(gang, f"{SOLD_OUT}: {error}")
            case QuotaError():
                return self._over_quota(gang, offer, str(error))
            case CredentialsError():
                self.memory.credentials = str(error)
                return gang
            case NotYetError():
                return gang
            case RateLimitError():
                self._back_off(gang[0].id)
                return gang
            case _:
                return self._failed(gang, error)

    def _refused(self, gang: Gang, reason: str) -> Gang:
        self.block(gang[0].offer_id, reason)
        return self._each(gang, lambda node: self.keep(node, self._never_was(node, reason)))

    def _over_quota(self, gang: Gang, offer: Offer, reason: str) -> Gang:
        same = tuple(other.id for other in self.seen.market.offers if _same_limit(offer, other))
        self._block(same, QUOTA_BLOCK_S, f"account limit: {reason}")
        return self._each(gang, lambda node: self.keep(node, self._never_was(node, f"account limit: {reason}")))

    def _failed(self, gang: Gang, error: ProvisionError) -> Gang:
        failures, first = self.memory.failures, gang[0]
        failures[first.id] = tries = failures.get(first.id, 0) + 1
        self.journal.say("launch_failed", str(error), node=first.id, code=error.code, attempt=tries)
        if tries < MAX_TRIES:
            self._back_off(first.id)
            return gang
        self.block(first.offer_id, f"failed {tries} times: {error}")
        # They may exist all the same.
        return self._each(gang, lambda node: self.end(node, f"could not be launched: {error}"))

    def _each(self, gang: Gang, act: Callable[[Node], Node]) -> Gang:
        return tuple(act(node) for node in gang)

    def _block(self, offer_ids: tuple[OfferId, ...], for_s: float, reason: str) -> None:
        for offer_id in offer_ids:
            self.ports.store.save_block(self.seen.run.id, offer_id, self.seen.now_s + for_s, reason)
        self.journal.say("pool_blocked", f"{offer_ids[0]} for {for_s:.0f} s: {reason}", pools=len(offer_ids))
        self.memory.pending.append("capacity")

    def _never_was(self, node: Node, cause: str) -> Node:
        return node.model_copy(update={"status": NodeStatus.GONE, "cause": cause, "gone_at_s": self.seen.now_s})

    def _backs_off(self, node_id: NodeId) -> bool:
        return self.seen.wall_s < self.memory.not_before.get(node_id, 0.0)

    def _back_off(self, node_id: NodeId) -> None:
        memory = self.memory
        memory.back_offs[node_id] = count = memory.back_offs.get(node_id, 0) + 1
        memory.not_before[node_id] = self.seen.wall_s + min(2.0 ** (count - 1), MAX_BACK_OFF_S)

    def _forget(self, node_id: NodeId) -> None:
        for book in (self.memory.failures, self.memory.back_offs, self.memory.not_before):
            book.pop(node_id, None)


def _same_limit(one: Offer, other: Offer) -> bool:
    """Do two offers draw on one account limit? Without a quota key: same family, region and tenure."""
    if one.quota is not None:
        return one.quota == other.quota
    return (one.cloud, one.region, one.gpu, one.tenure) == (other.cloud, other.region, other.gpu, other.tenure)
