"""resize: does a gang only change its number of machines? Then its state moves while it trains; else it restarts."""

from hexcloud.domain.plan import Role, Slot


def is_resize(before: tuple[Slot, ...], after: tuple[Slot, ...]) -> bool:
    """Do two fleets' gangs have the same head, and machines of one offer only? Slots of other roles do not matter."""
    old, new = _gang(before), _gang(after)
    if not old or not new or old[0].name != new[0].name or old[0].rank or new[0].rank:
        return False
    return len({slot.offer_id for slot in (*old, *new)}) == 1


def _gang(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Return the trainer's slots in rank order."""
    return tuple(sorted((slot for slot in slots if slot.role is Role.TRAINER), key=lambda slot: slot.rank))
