"""LocalProvisioner: a Node is a real process tree on this machine, killed, preempted and lost like a rented one.

A node id is launched at most once, whatever is killed when: the intent is on disk before the process is started, and
the process itself claims the node's record before it does anything (see `launch`).
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexcloud.adapters.provisioners import processes
from hexcloud.adapters.provisioners.node_dir import Intent, NodeDir
from hexcloud.adapters.provisioners.preemption import PoolEvents, Preemptions
from hexcloud.domain.command import Command
from hexcloud.domain.errors import CapacityError, UnknownProvisionError
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.offer import Offer
from hexcloud.ports import Clock

GRACE_S = 10.0
"""Wall seconds between SIGTERM and SIGKILL: a trainer writes its checkpoint in about one."""
CLAIM_S = 10.0
"""Wall seconds in which a started process claims its node; measured 0.02 on an idle machine."""


class LocalProvisioner:
    """Implements ports.Provisioner for one run's folder. Safe to use from several processes at once.

    Nothing runs between calls: preemptions of the trace and kills after the grace happen at the next call of any kind.
    """

    is_elastic = True
    """Every machine is a process tree of its own."""

    def __init__(
        self,
        run_dir: Path,
        clock: Clock,
        pools: PoolEvents | None = None,
        origin_s: float = 0.0,
        grace_s: float = GRACE_S,
    ) -> None:
        """`origin_s` is the run clock at the run's beginning, from which `pools` counts, seconds since the epoch."""
        self._root = (run_dir / "nodes").resolve()
        self._clock = clock
        self._pools = pools
        self._preemptions = None if pools is None else Preemptions(self._root / "preempted.json", pools)
        self._origin_s = origin_s
        self._grace_s = grace_s
        self._children: set[int] = set()

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """Start each node's process in its own directory and session; returns when they run.

        A node that was launched before, by whomever, is left as it is. Raises CapacityError when the trace says that
        the pool is sold out, UnknownProvisionError when no process can be started; then none of them is left running.
        """
        with self._turn():
            begun = [
                (directory, node, command)
                for node, command in zip(nodes, commands, strict=True)
                if not (directory := self._of(node.id)).has_record()
            ]
            if any(directory.intent() is None for directory, _, _ in begun):
                self._check_capacity(offer)
            for directory, node, command in begun:
                directory.prepare(self._intent(node), command.files)
            self._spawn([(directory, command) for directory, _, command in begun])

    def terminate(self, node_id: NodeId) -> None:
        """Send SIGTERM at the first call; SIGKILL follows at the first call of any kind after the grace.

        Returns at once; `list_nodes` confirms the end.
        """
        with self._turn() as alive:
            directory = self._of(node_id)
            if directory.intent() is None:
                processes.kill(directory)  # nothing, or a stray, of which nobody can note since when it ends
                return
            if directory.close() or node_id not in alive:
                return
            if directory.stopping_since_wall_s() is None:
                directory.mark_stopping(self._clock.wall_s())
                processes.interrupt(directory)

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return the run's nodes that have a live process, or were asked for just now and may get one.

        Live processes of nodes whose directory is lost are among them: a machine is never forgotten.
        """
        with self._turn() as alive:
            asked = {self._of(intent.node_id).path: intent for intent in self._intents()}
            mine = (intent for intent in asked.values() if intent.run_id == run_id)
            known = [intent.node_id for intent in mine if intent.node_id in alive or self._may_begin(intent)]
            strays = (NodeId(path.name) for path in processes.below(self._root) - set(asked))
            return tuple(sorted([*known, *strays]))

    def _spawn(self, begun: list[tuple[NodeDir, Command]]) -> None:
        try:
            self._children |= {processes.spawn(directory, command) for directory, command in begun}
        except OSError:
            for directory, _ in begun:
                processes.kill(directory)
            raise
        for directory, _ in begun:
            self._await_record(directory)

    @contextmanager
    def _turn(self) -> Iterator[dict[NodeId, Intent]]:
        """Hold the folder, do what is overdue, and give the nodes that are alive then."""
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (self._root / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._end_doomed()
                self._children = processes.reap(self._children)
                yield self._alive()
        except OSError as error:
            raise UnknownProvisionError(f"{self._root}: {error}", code=type(error).__name__) from error

    def _end_doomed(self) -> None:
        alive = self._alive()
        for node_id in self._overdue(alive) | self._preempted(alive):
            processes.kill(self._of(node_id))

    def _alive(self) -> dict[NodeId, Intent]:
        intents = tuple(self._intents())
        living = processes.living(self._of(intent.node_id) for intent in intents)
        return {intent.node_id: intent for intent in intents if self._of(intent.node_id).path in living}

    def _overdue(self, alive: dict[NodeId, Intent]) -> set[NodeId]:
        since = {node_id: self._of(node_id).stopping_since_wall_s() for node_id in alive}
        now_wall_s = self._clock.wall_s()
        return {node_id for node_id, wall_s in since.items() if wall_s and now_wall_s - wall_s > self._grace_s}

    def _preempted(self, alive: dict[NodeId, Intent]) -> set[NodeId]:
        if self._preemptions is None:
            return set()
        pools = {node_id: intent.offer_id for node_id, intent in alive.items()}
        return alive.keys() & set(self._preemptions.victims(self._at_s(), pools))

    def _check_capacity(self, offer: Offer) -> None:
        if self._pools is not None and self._pools.is_sold_out(offer.id, self._at_s()):
            raise CapacityError(f"{offer.id} is sold out (price trace)", offer.id, "sold_out")

    def _may_begin(self, intent: Intent) -> bool:
        directory = self._of(intent.node_id)
        if directory.has_record():
            return False
        is_recent = self._clock.wall_s() - intent.asked_wall_s < CLAIM_S
        # An old intent without a process was never carried out; from now on it never will be.
        return is_recent or not directory.close()

    def _await_record(self, directory: NodeDir) -> None:
        give_up = time.monotonic() + CLAIM_S
        while not directory.has_record() and time.monotonic() < give_up:
            time.sleep(0.005)

    def _intents(self) -> Iterator[Intent]:
        for path in sorted(self._root.iterdir()):
            intent = NodeDir(path).intent()
            if intent is not None:
                yield intent

    def _intent(self, node: Node) -> Intent:
        return Intent(node_id=node.id, run_id=node.run_id, offer_id=node.offer_id, asked_wall_s=self._clock.wall_s())

    def _at_s(self) -> float:
        return self._clock.now_s() - self._origin_s

    def _of(self, node_id: NodeId) -> NodeDir:
        return NodeDir(self._root / node_id)
