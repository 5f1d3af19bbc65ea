"""WorkerCare: finds the workers that speak and of whose leases nothing comes, names them, and takes their work away.

One that is silent is found by its heartbeats; one whose engine hangs mends itself, or ends. What is left is seen here:
leases that run out again and again or come back without a token, samples and commits that contradict them. The run's
view names such a worker, so that whoever rents it replaces it.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from hexcloud.admission.admission import Admission, Receipt
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import NodeView
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator_nodes import KnownNode, NodeTable

MAX_TROUBLE = 300
"""Characters of an unexpected error that the run's view shows."""
Found = TypeVar("Found")

log = structlog.get_logger()


class WorkerCare:
    """Judges workers by what becomes of their leases. `clock` gives wall seconds."""

    def __init__(self, nodes: NodeTable, admission: Admission, clock: Callable[[], float]) -> None:
        self._nodes = nodes
        self._admission = admission
        self._clock = clock

    def overdue(self, leases: Counter[str]) -> None:
        """Hear of leases that ran out, by worker."""
        for worker, count in leases.items():
            log.warning("leases_overdue", node=worker, leases=count)
            if (node := self._nodes.get(NodeId(worker))) is not None:
                self._strike(node, f"nothing came of its leases within {self._admission.terms.lease_s:.0f} s")

    def judge(self, node: KnownNode, receipts: Counter[Receipt]) -> None:
        """Hear what became of samples that a worker delivered: one that is good forgives it what was before."""
        if not self._refused(node, receipts) and receipts[Receipt.ACCEPTED]:
            node.strikes, node.made_at_s = 0, self._clock()

    def hear(self, node: KnownNode, receipts: Counter[Receipt], new_tokens: int, is_back: bool) -> None:
        """Hear what became of leases that a worker renewed or gave back, with so many tokens that it made.

        It may give back what it has not begun when it leaves, or once in a while: its engine is restarted, takes
        weights. One that makes no token for a lease's time and still comes back for more has an engine that always
        fails.
        """
        if self._refused(node, receipts) or not receipts[Receipt.ACCEPTED]:
            return
        now_s = self._clock()
        if new_tokens:
            node.made_at_s = now_s
        elif is_back and not node.is_going and now_s - node.made_at_s >= self._admission.terms.lease_s:
            self._strike(node, "it gives its leases back without a token")

    def alone(self, node: KnownNode, look: Callable[[], Found]) -> Found | None:
        """Return what a look at what one worker has said gives; None, and it gets no more work, where that fails.

        Whatever it has said, it is its own trouble and not the run's. A failure about the trainer is the run's, and
        raised.
        """
        try:
            return look()
        except Exception as error:
            if node.role is not Role.ROLLOUT:
                raise
            if not node.trouble:
                log.exception("worker_unreadable", node=node.id)
                self._give_up(node, f"what it said of itself cannot be worked with: {error!r}"[:MAX_TROUBLE])
            node.forget_words()
            return None

    def views(self, held: Callable[[KnownNode], int], now_s: float) -> tuple[NodeView, ...]:
        """Return what can be told of every node; `held`: leases of one."""
        views = (self.alone(node, partial(self._nodes.view, node, held(node), now_s)) for node in self._nodes)
        return tuple(view for view in views if view is not None)

    def rate(self, node: KnownNode) -> float:
        """Return a worker's recent tokens per second; 0 where they cannot be told."""
        return self.alone(node, lambda: node.tokens_per_s) or 0.0

    def _refused(self, node: KnownNode, receipts: Counter[Receipt]) -> bool:
        if not receipts[Receipt.REFUSED]:
            return False
        log.warning("samples_refused", node=node.id, samples=receipts[Receipt.REFUSED])
        self._strike(node, "its samples contradict their leases")
        return True

    def _strike(self, node: KnownNode, reason: str) -> None:
        if node.strike(reason, self._clock(), self._admission.terms.lease_s / 2):
            self._give_up(node, node.trouble)

    def _give_up(self, node: KnownNode, reason: str) -> None:
        """Take a worker's work away and name it."""
        node.trouble = reason
        log.error("worker_broken", node=node.id, reason=reason)
        self._admission.leave(node.id)
        self._admission.join(node.id, node.slots)
