"""Moves: the way from the slots that run to the slots of a plan, cut into changes that can be judged one by one."""

from collections import deque
from collections.abc import Iterable
from itertools import chain

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.plan import Placement, Role, Slot, SlotName
from hexcloud.planner.worth import Worth

_ROUNDING = 1e-9

Unit = tuple[Slot, ...]
"""A rollout machine, or the machines of a replica, head first."""


class Move(Frozen):
    """Slots that come and slots that go together. A gang is named whole, running ranks included."""

    joins: tuple[Slot, ...] = ()
    leaves: tuple[Slot, ...] = ()
    gang: tuple[Slot, ...] = ()
    """The gang after the move; empty when the gang stays as it is."""

    def apply(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the slots after the move, sorted by name."""
        gone = {slot.name for slot in self.leaves}
        stay = (slot for slot in slots if slot.name not in gone and not (self.gang and slot.role is Role.TRAINER))
        come = (slot for slot in self.joins if not (self.gang and slot.role is Role.TRAINER))
        return tuple(sorted((*stay, *come, *self.gang), key=lambda slot: slot.name))

    @property
    def gang_part(self) -> "Move":
        """The trainer's share of the move."""
        return Move(joins=_trainers(self.joins), leaves=_trainers(self.leaves), gang=self.gang)

    @property
    def rollout_part(self) -> "Move":
        """The rollout machines' share of the move."""
        return Move(joins=_rollout(self.joins), leaves=_rollout(self.leaves))

    @property
    def is_empty(self) -> bool:
        """Does nothing come or go?"""
        return not self.joins and not self.leaves


def whole_move(slots: tuple[Slot, ...], plan: Placement) -> Move:
    """Return the one move from running slots to the plan."""
    running, wanted = {slot.name for slot in slots}, {slot.name for slot in plan.slots}
    joins = tuple(slot for slot in plan.slots if slot.name not in running)
    leaves = tuple(slot for slot in slots if slot.name not in wanted)
    gang_moves = any(slot.role is Role.TRAINER for slot in (*joins, *leaves))
    return Move(joins=joins, leaves=leaves, gang=plan.role(Role.TRAINER) if gang_moves else ())


def independent_moves(whole: Move, slots: tuple[Slot, ...], worth: Worth) -> list[Move]:
    """Cut a move into independent ones: the gang as one, rollout machines pairwise by throughput.

    A gang that leaves its region takes everything along.
    """
    if leaves_region(whole, slots):
        return [whole]
    return _pairs(whole.rollout_part, worth) + ([whole.gang_part] if whole.gang else [])


def leaves_region(move: Move, slots: tuple[Slot, ...]) -> bool:
    """Does the gang of these slots go to another region? Then links, egress and staleness of every slot change."""
    return bool(move.gang) and _regions(move.gang) != _regions(_trainers(slots))


def _pairs(rollout: Move, worth: Worth) -> list[Move]:
    """Pair the dearest machines that leave with the cheapest that join, per sample; each pair loses no throughput.

    What is left over only joins or only leaves, one machine or replica at a time.
    """
    joins = deque(sorted(units(rollout.joins), key=lambda unit: (worth.usd_per_sample(unit), unit[0].name)))
    leaves = deque(sorted(units(rollout.leaves), key=lambda unit: (-worth.usd_per_sample(unit), unit[0].name)))
    moves: list[Move] = []
    while joins and leaves:
        come, go = [joins.popleft()], [leaves.popleft()]
        while joins and not _covers(worth, come, go):
            come.append(joins.popleft())
        while leaves and _covers(worth, come, [*go, leaves[0]]):
            go.append(leaves.popleft())
        moves.append(Move(joins=tuple(chain(*come)), leaves=tuple(chain(*go))))
    return moves + [Move(joins=unit) for unit in joins] + [Move(leaves=unit) for unit in leaves]


def units(slots: Iterable[Slot]) -> list[Unit]:
    """Return the rollout slots that come and go together."""
    found: dict[SlotName, list[Slot]] = {}
    for slot in sorted(slots, key=lambda slot: slot.rank):
        found.setdefault(slot.unit, []).append(slot)
    return [tuple(members) for members in found.values()]


def _covers(worth: Worth, come: list[Unit], go: list[Unit]) -> bool:
    return worth.rollout_rate(tuple(chain(*come))) >= worth.rollout_rate(tuple(chain(*go))) * (1 - _ROUNDING)


def _rollout(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(slot for slot in slots if slot.role is Role.ROLLOUT)


def _trainers(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(slot for slot in slots if slot.role is Role.TRAINER)


def _regions(slots: tuple[Slot, ...]) -> set[str]:
    """Read `cloud/region` off the offers' ids: the market may no longer list a machine that runs."""
    return {"/".join(slot.offer_id.split("/")[:2]) for slot in slots}
