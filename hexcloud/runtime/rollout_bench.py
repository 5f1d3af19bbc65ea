"""Bench: which leases a rollout node is generating now. No I/O."""

from collections.abc import Iterable

from hexcloud.domain.lease import Lease, LeaseId

Key = tuple[LeaseId, int]
"""A lease and its attempt."""


def key(lease: Lease) -> Key:
    """Return what fences a lease's late results."""
    return lease.id, lease.attempt


class Bench:
    """Running leases against a number of slots."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._running: dict[Key, Lease] = {}
        self._ended_elsewhere: set[Key] = set()
        self.generated_tokens = 0

    @property
    def free(self) -> int:
        """Slots without a running sample."""
        return self._slots - len(self._running)

    @property
    def running(self) -> int:
        """Samples being generated."""
        return len(self._running)

    def leases(self) -> tuple[Lease, ...]:
        """Return what is being generated, in order of start."""
        return tuple(self._running.values())

    def begin(self, leases: Iterable[Lease]) -> None:
        """Put leases in slots."""
        self._running |= {key(lease): lease for lease in leases}

    def end(self, leases: Iterable[Lease], tokens: int) -> None:
        """Free the slots of leases that made `tokens` tokens together."""
        for lease in leases:
            self._running.pop(key(lease), None)
        self.generated_tokens += tokens

    def mark_ended_elsewhere(self, ids: Iterable[LeaseId]) -> tuple[Lease, ...]:
        """Remember that these ended elsewhere; return those that still run here."""
        wanted = frozenset(ids)
        hit = tuple(lease for lease in self._running.values() if lease.id in wanted)
        self._ended_elsewhere |= {key(lease) for lease in hit}
        return hit

    def take_ended_elsewhere(self, lease: Lease) -> bool:
        """Did this lease end elsewhere? Forgets it."""
        if key(lease) not in self._ended_elsewhere:
            return False
        self._ended_elsewhere.discard(key(lease))
        return True
