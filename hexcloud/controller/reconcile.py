"""Reconcile: observe, settle, judge, apply, over and over. What is wanted is in the store, what is real outside."""

from contextlib import suppress
from dataclasses import dataclass, replace

from hexcloud.controller.apply import Nodes, admit, apply
from hexcloud.controller.bucket_word import tell_of_bucket, tell_of_weights_stores
from hexcloud.controller.budget import Purse
from hexcloud.controller.calibrate import calibrate
from hexcloud.controller.commands import planned_gang
from hexcloud.controller.gang import ask_of, is_up
from hexcloud.controller.hands import Hands
from hexcloud.controller.journal import Journal
from hexcloud.controller.launching import MAX_TRIES
from hexcloud.controller.ledger import settle
from hexcloud.controller.life import UNREGISTERED, Patience, follow, is_head, was_lost, was_noticed
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.progress import count_loss, hopeless, note, note_dropout
from hexcloud.controller.replan import Accepted, replan, triggers
from hexcloud.controller.slow_gang import part_with_slow_gang
from hexcloud.controller.view_word import tell_of_view
from hexcloud.controller.winddown import begin_stop, wind_down
from hexcloud.domain.errors import (
    BudgetError,
    EngineError,
    MarketError,
    PartListError,
    PlanError,
    ProvisionError,
    StoreError,
)
from hexcloud.domain.fleet import Node, NodeId, NodeStatus
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Placement, Role
from hexcloud.domain.run import RunRecord, RunState

ENDED = frozenset({RunState.DONE, RunState.FAILED})


@dataclass(frozen=True)
class Turn:
    """What one turn did."""

    state: RunState
    triggers: tuple[str, ...] = ()
    """Why there was a re-plan; empty when there was none."""
    changed: tuple[NodeId, ...] = ()
    """Nodes whose record changed."""
    held: str = ""
    """Why nothing was done: the store or every market is gone."""


class Controller:
    """The loop over one run. It may be killed at any moment and made again from the same run and ports."""

    def __init__(self, run: RunRecord, ports: Ports) -> None:
        self._run = run
        self._ports = ports
        self._memory = Memory(placed_at=ports.clock.wall_s())

    def run_until_done(self) -> RunState:
        """Reconcile until the run has ended. Raises BudgetError and PlanError when nothing can be rented at all."""
        while (turn := self.reconcile_once()).state not in ENDED:
            self._ports.clock.sleep(self._ports.timing.poll_s)
        return turn.state

    def request_replan(self, reason: str) -> None:
        """Ask for a re-plan at the next turn; from any thread. `reason` is one word: `schedule`, `manual`."""
        self._memory.requests.replan(reason)

    def stop(self, reason: str) -> None:
        """Ask for a checkpoint and the end of the run; from any thread."""
        self._memory.requests.stop(reason)

    def end_now(self) -> None:
        """Ask for the end of every machine at once, between two turns; what refuses is ended by the next ones."""
        provisioner, nodes = self._ports.provisioner, tuple[str, ...]()
        try:
            nodes = provisioner.list_nodes(self._run.id)
        except PartListError as error:
            nodes = error.listed
        except ProvisionError:
            pass  # the next turns ask
        for node_id in nodes:
            with suppress(ProvisionError):
                provisioner.terminate(NodeId(node_id))

    def reconcile_once(self) -> Turn:
        """Take one turn. Without the store or any market it holds and spends nothing new."""
        try:
            return self._turn()
        except (StoreError, MarketError) as error:
            return Turn(state=self._run.state, held=str(error))

    def _turn(self) -> Turn:
        self._run = self._ports.store.run(self._run.id) or self._run
        if self._run.state in ENDED:
            return Turn(state=self._run.state)
        seen = observe(self._run, self._ports, self._memory)
        settle(seen, self._ports.store, self._memory, self._ports.timing)
        seen = calibrate(seen, self._ports.store, self._memory.learning)
        hands = Hands(self._ports, self._memory, seen, Journal(self._ports.store, seen))
        tell_of_view(hands)
        tell_of_bucket(hands)
        tell_of_weights_stores(hands)
        nodes = part_with_slow_gang(self._follow(hands), hands)
        purse = Purse(seen, self._ports.timing, self._ports.store.spent_usd(self._run.id))
        hands = self._check_end(nodes, hands, purse)
        if hands.seen.run.state is RunState.STOPPING:
            return self._closed(wind_down(nodes, hands, purse), hands.seen)
        reasons = () if seen.is_trained else triggers(hands)
        accepted = self._plan(reasons, nodes, hands) if reasons else _in_force(seen)
        if accepted:
            purse = replace(purse, seen=replace(seen, accepted=accepted))
        hands = self._renew(nodes, hands, purse)
        if accepted:
            if _is_too_poor(accepted[1], nodes, purse):
                begin_stop(hands, f"{_used_up(purse)}; the rest rents no fleet")
                return self._closed(nodes, seen, reasons)
            nodes = apply(*accepted, nodes, hands, purse)
        admit(nodes, hands)
        return self._closed(nodes, seen, reasons)

    def _follow(self, hands: Hands) -> Nodes:
        """Bring every node's record up to what was seen; a loss asks for a re-plan."""
        seen, memory = hands.seen, hands.memory
        patience = Patience(self._ports.timing, memory)
        note(hands)
        nodes: Nodes = {}
        for old in seen.nodes:
            new = nodes[old.id] = follow(old, seen, patience)
            if new == old:
                continue
            hands.keep(old, new)
            if new.status is NodeStatus.READY:
                if not new.is_joiner:  # one that joins a gang has yet to show that it can
                    memory.pools.forgive(new.offer_id)
                if is_up(new, (nodes.get(one.id, one) for one in seen.nodes)):
                    memory.failed_starts.pop(new.offer_id, None)
            if was_lost(old, new) or was_noticed(old, new):
                self._note_loss(new, hands)
        return nodes

    def _note_loss(self, node: Node, hands: Hands) -> None:
        hands.memory.pending.append("loss")
        if node.status is NodeStatus.GONE:
            hands.terminate(node.id)  # whatever a provider keeps beside the machine, the rest of its gang among it
        if node.status is NodeStatus.DRAINING:
            hands.block(node.offer_id, node.cause)
        if node.ready_at_s is None:
            self._count_failure(node, hands)
        elif is_head(node):
            count_loss(node, hands.memory.progress, hands.seen.wall_s)
        elif node.is_joiner:
            note_dropout(node, hands)

    def _count_failure(self, node: Node, hands: Hands) -> None:
        """A pool whose machines are late, or again and again go before they come up, is blocked as if sold out.

        However many machines of one call go, it is one failure.
        """
        ask, pool = ask_of(node), node.offer_id
        failed = hands.memory.failed_starts.setdefault(pool, set())
        if ask in failed:
            return
        failed.add(ask)
        if node.cause.startswith(UNREGISTERED):
            hands.block(pool, node.cause)
        elif len(failed) >= MAX_TRIES:
            hands.block(pool, "its machines do not come up")

    def _check_end(self, nodes: Nodes, hands: Hands, purse: Purse) -> Hands:
        """Begin to stop when it is time; the returned hands know the run's new state."""
        seen, memory = hands.seen, hands.memory
        if seen.run.state is RunState.STOPPING:
            return hands
        standing = [node for node in nodes.values() if node.status is not NodeStatus.GONE]
        if memory.credentials:
            begin_stop(hands, f"the provider refused our credentials: {memory.credentials}", failed=True)
        elif seen.view and seen.view.phase is RunPhase.DONE:
            begin_stop(hands, "all steps are trained")
        elif hope := hopeless(nodes, hands):
            begin_stop(hands, hope, failed=True)
        elif purse.must_stop(standing):
            begin_stop(hands, _reserved(purse, standing))
        elif reason := memory.requests.stop_reason:
            begin_stop(hands, reason)
        else:
            return hands
        self._run = self._ports.store.run(self._run.id) or self._run
        return replace(hands, seen=replace(seen, run=self._run))

    def _renew(self, nodes: Nodes, hands: Hands, purse: Purse) -> Hands:
        """Let the fleet run on until the next lease ends, and never beyond the money; tell what is planned of the gang.

        Who did not hear it is told nothing else this turn: no machine may leave the gang before its layout is known.
        """
        if hands.seen.coordinator is None:
            return hands
        standing = [node for node in nodes.values() if node.status is not NodeStatus.GONE]
        placement = purse.seen.placement
        gang = planned_gang(placement, self._run) if placement else None
        try:
            hands.seen.coordinator.renew(purse.lease_end_wall_s(standing), gang)
        except EngineError:  # the lease that was granted before is still running
            return replace(hands, seen=replace(hands.seen, coordinator=None))
        return hands

    def _plan(self, reasons: tuple[str, ...], nodes: Nodes, hands: Hands) -> Accepted:
        """Re-plan. A run that cannot even begin has failed: nothing was rented for it."""
        try:
            return replan(reasons, nodes, hands)
        except (PlanError, BudgetError) as error:
            self._ports.store.set_run_state(self._run.id, RunState.FAILED, str(error))
            raise

    def _closed(self, nodes: Nodes, seen: Seen, reasons: tuple[str, ...] = ()) -> Turn:
        before = {node.id: node for node in seen.nodes}
        changed = tuple(key for key, node in nodes.items() if node != before.get(key))
        self._run = self._ports.store.run(self._run.id) or self._run
        return Turn(state=self._run.state, triggers=reasons, changed=changed)


def _used_up(purse: Purse) -> str:
    return f"budget: {purse.spent_usd:.2f} of {purse.seen.run.policy.budget_usd:.2f} USD spent"


def _reserved(purse: Purse, standing: list[Node]) -> str:
    cap_usd, kept_usd = purse.seen.run.policy.budget_usd, purse.reserve_usd(standing)
    kept = f"{kept_usd:.2f} kept for checkpoint and teardown at the highest price"
    return f"budget: {purse.spent_usd:.2f} spent, {kept}, of {cap_usd:.2f} USD"


def _is_too_poor(placement: Placement, nodes: Nodes, purse: Purse) -> bool:
    """Does nothing stand, and does the money left launch nothing of some role? Then a run would wait for ever."""
    if any(node.status is not NodeStatus.GONE for node in nodes.values()):
        return False
    affordable = {
        slot.role for slot in placement.slots if purse.can_launch((), slot.offer_id, slot.role, slot.together)
    }
    return any(slot.role not in affordable for slot in placement.slots)


def _in_force(seen: Seen) -> Accepted | None:
    """Return the plan in force; when all steps are trained only the trainer is still needed, to write the output."""
    if seen.accepted is None or not seen.is_trained:
        return seen.accepted
    plan, placement = seen.accepted
    return plan, Placement(slots=placement.role(Role.TRAINER))
