"""Launching: a gang's way from stored intents to machines at work; every refusal and every delay is met here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hexcloud.controller.commands import command_for
from hexcloud.controller.hands import Hands
from hexcloud.controller.life import LATE, Patience
from hexcloud.controller.memory import Phase
from hexcloud.domain.errors import (
    GLOBAL_GPUS,
    CapacityError,
    CredentialsError,
    NotYetError,
    ProvisionError,
    QuotaError,
    RateLimitError,
)
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import ExecutionPlan, Slot, SlotName

MAX_TRIES = 3
"""Launches that fail for a reason nobody knows, before the next offer is tried."""
SOLD_OUT = "sold out"
"""How the cause of a node begins that its pool refused for want of capacity."""
OVER_LIMIT = "account limit"
UNKNOWN = "could not be launched"

Gang = tuple[Node, ...]
"""Machines of one offer that are rented in one call, in rank order; often just one."""


@dataclass(frozen=True)
class Launching:
    """What one turn can do about machines that are asked for. Every method returns the nodes as stored."""

    hands: Hands
    plan: ExecutionPlan
    slots: Mapping[SlotName, Slot]
    """The plan's, by name."""
    may_join: bool = False
    """Can machines join the trainer's gang one by one?"""

    def launch(self, gang: Gang) -> Gang:
        """Rent the machines of stored intents, again and again until the provider has them all, refused or is late."""
        hands, memory, wall_s = self.hands, self.hands.memory, self.hands.seen.wall_s
        offer = hands.seen.market.offer(gang[0].offer_id)
        if offer is None:
            hands.block(gang[0].offer_id, "no longer listed")
            return self._given_up(gang, "no longer listed")
        if any(memory.calls.is_waiting(scope, wall_s) for scope in (gang[0].id, _account(offer))):
            return self._wait(gang, memory.phases.get(gang[0].id, Phase("", wall_s)).name)
        memory.launched_at |= {node.id: wall_s for node in gang}
        commands = tuple(command_for(node, self.slots[node.slot], self.plan, hands.seen, hands.ports) for node in gang)
        try:
            hands.ports.provisioner.launch(gang, offer, commands)
        except ProvisionError as error:
            return self._met(error, gang, offer)
        self._forget(gang, offer)
        return _each(gang, lambda node: hands.keep(node, node.model_copy(update={"status": NodeStatus.STARTING})))

    def _met(self, error: ProvisionError, gang: Gang, offer: Offer) -> Gang:
        """Do with each kind of refusal what it is named for."""
        hands, wall_s = self.hands, self.hands.seen.wall_s
        match error:
            case CapacityError():
                hands.block(offer.id, f"{SOLD_OUT}: {error}")
                return self._never_were(gang, f"{SOLD_OUT}: {error}")
            case QuotaError():
                hands.block_limit(offer, f"{OVER_LIMIT}: {error}", is_global=error.code == GLOBAL_GPUS)
                return self._never_were(gang, f"{OVER_LIMIT}: {error}")
            case CredentialsError():
                hands.memory.credentials = str(error)
                return gang
            case NotYetError():
                return self._wait(gang, error.phase)
            case RateLimitError():
                hands.memory.calls.refuse(_account(offer), wall_s)
                return self._wait(gang, "")
            case _:
                return self._failed(gang, error)

    def _wait(self, gang: Gang, phase: str) -> Gang:
        """Go on waiting, unless a phase has lasted too long: then the whole gang is given up and its pool blocked."""
        hands, first, wall_s = self.hands, gang[0], self.hands.seen.wall_s
        now = hands.memory.phases.get(first.id)
        if now is None:
            now = Phase(phase, wall_s - Patience(hands.ports.timing, hands.memory).asked_s(first, hands.seen))
        elif phase and phase != now.name:
            now = Phase(phase, wall_s if now.name else now.since)
        if phase and hands.memory.phases.get(first.id) != now:
            text = f"{first.slot} on {first.offer_id}: {phase}"
            hands.journal.say("launch_phase", text, node=first.id, phase=phase)
        hands.memory.phases[first.id] = now
        bound_s = hands.ports.timing.bound_s(now.name)
        if wall_s - now.since <= bound_s:
            return gang
        cause = f"{LATE} {now.name or 'provision'}: not through after {bound_s:.0f} s"
        hands.block(first.offer_id, cause)
        return self._given_up(gang, cause)

    def _failed(self, gang: Gang, error: ProvisionError) -> Gang:
        hands, first = self.hands, gang[0]
        failures = hands.memory.failures
        failures[first.id] = tries = failures.get(first.id, 0) + 1
        text = f"{first.slot} on {first.offer_id}: the provider said {error.code or 'something unknown'}: {error}"
        hands.journal.say("launch_failed", text, node=first.id, code=error.code, attempt=tries)
        if tries < MAX_TRIES:
            hands.memory.calls.refuse(first.id, hands.seen.wall_s)
            return gang
        hands.block(first.offer_id, f"failed {tries} times: {error}")
        return self._given_up(gang, f"{UNKNOWN}: {error}")

    def _given_up(self, gang: Gang, cause: str) -> Gang:
        """End what may exist or be on its way all the same."""
        return _each(gang, lambda node: self.hands.end(node, cause))

    def _never_were(self, gang: Gang, cause: str) -> Gang:
        gone = {"status": NodeStatus.GONE, "cause": cause, "gone_at_s": self.hands.seen.now_s}
        return _each(gang, lambda node: self.hands.keep(node, node.model_copy(update=gone)))

    def _forget(self, gang: Gang, offer: Offer) -> None:
        memory, first = self.hands.memory, gang[0]
        memory.failures.pop(first.id, None)
        memory.phases.pop(first.id, None)
        memory.calls.forgive(first.id)
        memory.calls.forgive(_account(offer))


def _each(gang: Gang, act: Callable[[Node], Node]) -> Gang:
    return tuple(act(node) for node in gang)


def _account(offer: Offer) -> str:
    """Return the scope of a cloud's limit on calls: it counts all that the account does."""
    return f"account:{offer.cloud}"
