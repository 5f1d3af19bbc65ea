"""LeaseBook: which leases are open, who holds them, and how each of them ended.

Invariant: every granted (lease, attempt) ends exactly once, so granted = open + sample + lost + dropped.
"""

import heapq
from collections import Counter

from hexcloud.domain.lease import Lease, LeaseEnd, LeaseId


class LeaseBook:
    """Open leases by id and by worker, with deadlines that can be renewed in O(log n)."""

    def __init__(self) -> None:
        self._open: dict[LeaseId, Lease] = {}
        self._by_worker: dict[str, dict[LeaseId, None]] = {}
        self._deadline_s: dict[LeaseId, float] = {}
        self._queue: list[tuple[float, LeaseId, int]] = []
        self.granted = 0
        self.ended: Counter[LeaseEnd] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, lease_id: LeaseId) -> Lease | None:
        """Return the open lease of this sample, of whatever attempt."""
        return self._open.get(lease_id)

    def held(self, lease_id: LeaseId, attempt: int, worker: str) -> Lease | None:
        """Return the lease if exactly this attempt is open and this worker holds it: the fence against late results."""
        lease = self._open.get(lease_id)
        if lease is None or lease.attempt != attempt or lease.worker != worker:
            return None
        return lease

    def of(self, worker: str) -> tuple[Lease, ...]:
        """Return what a worker holds, in order of grant."""
        return tuple(self._open[lease_id] for lease_id in self._by_worker.get(worker, ()))

    def count(self, worker: str) -> int:
        """Return how many leases a worker holds."""
        return len(self._by_worker.get(worker, ()))

    def all(self) -> tuple[Lease, ...]:
        """Return every open lease, in order of grant."""
        return tuple(self._open.values())

    def grant(self, lease: Lease) -> None:
        """Open a lease. Raises ValueError when the sample is already leased."""
        if lease.id in self._open:
            raise ValueError(f"lease {lease.id} is already open")
        self._open[lease.id] = lease
        self._by_worker.setdefault(lease.worker, {})[lease.id] = None
        self._deadline_s[lease.id] = lease.deadline_s
        heapq.heappush(self._queue, (lease.deadline_s, lease.id, lease.attempt))
        self.granted += 1

    def renew(self, lease: Lease, deadline_s: float) -> None:
        """Move an open lease's deadline."""
        self._deadline_s[lease.id] = deadline_s

    def end(self, lease: Lease, how: LeaseEnd) -> None:
        """Close an open lease. Raises KeyError when it is not open: a lease ends once."""
        del self._open[lease.id]
        del self._deadline_s[lease.id]
        mine = self._by_worker[lease.worker]
        del mine[lease.id]
        if not mine:
            del self._by_worker[lease.worker]
        self.ended[how] += 1

    def expired(self, now_s: float) -> tuple[Lease, ...]:
        """Return open leases whose deadline is not after `now_s`. The caller ends each before it asks again."""
        late: list[Lease] = []
        while self._queue and self._queue[0][0] <= now_s:
            _, lease_id, attempt = heapq.heappop(self._queue)
            lease = self._open.get(lease_id)
            if lease is None or lease.attempt != attempt:
                continue
            deadline_s = self._deadline_s[lease_id]
            if deadline_s <= now_s:
                late.append(lease)
            else:
                heapq.heappush(self._queue, (deadline_s, lease_id, attempt))
        return tuple(late)
