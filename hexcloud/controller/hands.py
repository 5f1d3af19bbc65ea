"""Hands: single calls to provider and coordinator about machines that exist, and the pools to keep away from."""

from dataclasses import dataclass

from hexcloud.controller.journal import Journal
from hexcloud.controller.life import is_head
from hexcloud.controller.memory import Ending, Memory
from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import Ports
from hexcloud.domain.errors import CredentialsError, EngineError, NotYetError, ProvisionError, RateLimitError
from hexcloud.domain.fleet import LIVE, Node, NodeId, NodeStatus
from hexcloud.domain.label import NODE_TAG, label
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import Role, TrainerColumn
from hexcloud.estimate.resize import resize_s
from hexcloud.planner.distance import forecast_gb_per_s

HARD_REFUSALS = 3
"""Refusals of a machine's end in a row, other than to wait, that the user is told of."""
TELL_AGAIN_S = 3600.0
END_REFUSED = "end_refused"
"""Kind of the event that alarms of a machine that does not end; `node_gone` of the same node is its end."""


@dataclass(frozen=True)
class Hands:
    """What one turn can do. Every method returns the node as stored."""

    ports: Ports
    memory: Memory
    seen: Seen
    journal: Journal

    def end(self, node: Node, cause: str) -> Node:
        """Ask for the end of a machine, again and again until the provider no longer lists it."""
        stopping = node.model_copy(update={"status": NodeStatus.STOPPING, "cause": node.cause or cause})
        if stopping != node:
            self.keep(node, stopping)
        self.terminate(node.id)
        return stopping

    def terminate(self, node_id: NodeId) -> None:
        """Ask the provider to end a machine; a refusal is asked again after a back-off, and in the end told."""
        memory, wall_s = self.memory, self.seen.wall_s
        ending = memory.endings.setdefault(node_id, Ending(since=wall_s))
        if not memory.calls.is_waiting(node_id, wall_s):
            try:
                self.ports.provisioner.terminate(node_id)
                ending.is_heard, ending.refusals, ending.said = True, 0, ""
                memory.calls.forgive(node_id)
            except ProvisionError as error:
                self._note_refusal(node_id, ending, error)
        if self._is_alarming(ending):
            self._alarm(node_id, ending)

    def drain(self, node: Node, cause: str) -> Node:
        """Tell a node to finish what it holds and to exit; repeated until it has, or its time is over."""
        memory, wall_s = self.memory, self.seen.wall_s
        since = memory.drained_at.setdefault(node.id, wall_s)
        draining = node.model_copy(update={"status": NodeStatus.DRAINING, "cause": node.cause or cause})
        if draining != node:
            self.keep(node, draining)
        view = self.seen.node_view(node.id)
        if (view and view.drained) or wall_s - since > self._drain_s(node):
            return self.end(draining, cause)
        self._tell_to_drain(node.id)
        return draining

    def keep(self, old: Node, new: Node) -> Node:
        """Store a node and its event."""
        self.journal.save(old, new)
        return new

    def block(self, offer_id: OfferId, reason: str) -> None:
        """Keep away from a pool, longer each time, and ask for a re-plan."""
        self._block((offer_id,), self.memory.pools.refuse(offer_id, self.seen.now_s), reason)

    def block_limit(self, offer: Offer, reason: str, is_global: bool = False) -> None:
        """Keep away from every pool that draws on the same account limit; `is_global`: on that of all regions' GPUs."""
        limit_of = _global_limit_of if is_global else _limit_of
        same = tuple(other.id for other in self.seen.market.offers if limit_of(other) == limit_of(offer))
        self._block(same, self.memory.limits.refuse(limit_of(offer), self.seen.now_s), reason)

    def _drain_s(self, node: Node) -> float:
        """Return the wall seconds in which a node must have drained: the trainer ends its step before anything else.

        Then a member hands on its share. Without a head nobody hears of the order, and there is nothing to save.
        """
        accepted, drain_s = self.seen.accepted, self.ports.timing.drain_s
        if accepted is None or node.role is not Role.TRAINER:
            return drain_s
        if not any(is_head(one) and one.status in LIVE for one in self.seen.nodes):
            return 0.0
        plan = accepted[0]
        gang = plan.allocation.trainer.column
        busy_s = plan.forecast.step_s + (self._hand_over_s(node, gang) if node.rank else 0.0)
        return drain_s + busy_s / self.seen.run.clock_scale

    def _hand_over_s(self, node: Node, gang: TrainerColumn) -> float:
        """Return the run seconds in which a member's share moves to the others."""
        market = self.seen.market
        offer = market.offer(node.offer_id)
        if offer is None:
            return 0.0
        gb_per_s = forecast_gb_per_s(offer, offer, market.network)
        return resize_s(self.seen.run.workload.model, gang.formation, gang.formation, gb_per_s)

    def _tell_to_drain(self, node_id: NodeId) -> None:
        if self.seen.coordinator is None:
            return
        try:
            self.seen.coordinator.drain(node_id)
        except EngineError:
            return  # it is asked again next turn, and ended by force in the end

    def _note_refusal(self, node_id: NodeId, ending: Ending, error: ProvisionError) -> None:
        ending.is_heard, ending.said = False, str(error)
        self.memory.calls.refuse(node_id, self.seen.wall_s)
        if not isinstance(error, NotYetError | RateLimitError):
            ending.refusals += 1
        if isinstance(error, CredentialsError):
            self.memory.credentials = str(error)

    def _is_alarming(self, ending: Ending) -> bool:
        wall_s = self.seen.wall_s
        if ending.told_at is not None and wall_s - ending.told_at < TELL_AGAIN_S:
            return False
        return ending.refusals >= HARD_REFUSALS or wall_s - ending.since > self.ports.timing.alarm_s

    def _alarm(self, node_id: NodeId, ending: Ending) -> None:
        """Tell the user of a machine that goes on costing money: which, how much, since when and what to do."""
        ending.told_at = self.seen.wall_s
        node = next((node for node in self.seen.nodes if node.id == node_id), None)
        usd_per_hour = self.seen.prices.compute(node.offer_id) if node else None
        age_h = (self.seen.now_s - node.requested_at_s) / 3600.0 if node else None
        price = "at a price nobody knows" if usd_per_hour is None else f"at {usd_per_hour:.2f} USD/h"
        age = "of unknown age" if age_h is None else f"{age_h:.1f} h old"
        why = ending.said or self._why_unended(node, self.seen.wall_s - ending.since)
        self.journal.say(
            END_REFUSED,
            f"{node_id} {price}, {age}, does not end: {why}; it is asked for again and again, look at the cloud's "
            f"console for machines with the tag {NODE_TAG}={label('.'.join(node_id.rsplit('.', 2)[1:]))}",
            node=node_id,
            usd_per_hour=usd_per_hour,
            age_h=age_h,
            refusals=ending.refusals,
        )

    def _why_unended(self, node: Node | None, since_s: float) -> str:
        """Return what keeps a machine on the books although the provider heard of its end."""
        is_listed = True if node is None else self.seen.is_listed(node)
        known = "its cloud cannot be asked whether it has ended," if is_listed is None else "it is still listed"
        return f"{known} {since_s:.0f} s after its end was asked for"

    def _block(self, offer_ids: tuple[OfferId, ...], for_s: float, reason: str) -> None:
        for offer_id in offer_ids:
            self.ports.store.save_block(self.seen.run.id, offer_id, self.seen.now_s + for_s, reason)
        self.journal.say("pool_blocked", f"{offer_ids[0]} for {for_s:.0f} s: {reason}", pools=len(offer_ids))
        self.memory.pending.append("capacity")


def _limit_of(offer: Offer) -> str:
    """Return the name of the account limit that an offer draws on; without a key: its family, region and tenure."""
    return offer.quota or f"{offer.cloud}/{offer.region}/{offer.gpu}/{offer.tenure.value}"


def _global_limit_of(offer: Offer) -> str:
    """Return the name of the limit on all GPUs of a tenure, whatever and wherever they are."""
    return f"{offer.cloud}/*/{'gpu' if offer.gpu_count else 'cpu'}/{offer.tenure.value}"
