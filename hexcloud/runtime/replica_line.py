"""ReplicaLine: how a replica's head leads its other machines: which weights to have, and which engine to start.

An engine loads new weights by one folder's name on all its machines, so the head hands every version on to the others
before it loads it. Machines of a replica stand in one zone and share a network of their own; who speaks there proves
the replica's key first, both ways, and nothing but JSON and bytes of files is ever read.
"""

import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Condition, Thread

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.replica import OrderKind, ReplicaAnswer, ReplicaFile, ReplicaOrder

JOIN_S = 300.0
"""For all members to call: their machines came up in one call."""
ANSWER_S = 600.0
"""For an answer: a member reads and hashes no more than what it was sent."""
AGAIN_S = 1.0
PIECE = 4 << 20
MOST_ORDER = 1 << 20
"""Bytes of an order or an answer."""
_BROKEN = (OSError, EOFError, AuthenticationError, ValueError)

log = structlog.get_logger()


class ReplicaHead:
    """Speaks to all members at once. Methods block, and raise EngineError when one member cannot."""

    def __init__(self, address: tuple[str, int], key: bytes, members: int) -> None:
        """`members` are the other machines, with ranks from 1 on."""
        self._listener = Listener(address, backlog=members, authkey=key)
        self._members: dict[int, Connection] = {}
        self._called = Condition()
        self._ranks = range(1, members + 1)
        self._is_closed = False
        self._pool = ThreadPoolExecutor(members, thread_name_prefix="replica")
        self._host, self.port = address[0], int(self._listener.address[1])
        Thread(target=self._listen, daemon=True, name="replica-door").start()

    def hand_on(self, folder: Path) -> None:
        """Let every member have the files of a folder, under the same name."""
        files = tuple(ReplicaFile(name=path.name, size=path.stat().st_size) for path in sorted(folder.iterdir()))
        self._all(ReplicaOrder(kind=OrderKind.TAKE, folder=str(folder), files=files))

    def start(self, order: ReplicaOrder) -> None:
        """Let every member start its part of an engine."""
        self._all(order)

    def close(self) -> None:
        """Speak to nobody any more; members end their part of the engine then."""
        self._is_closed = True
        with suppress(OSError), socket.create_connection((self._host, self.port), 1.0):
            pass  # who waits for a call wakes up by one, and closes the door
        with self._called:
            for line in self._members.values():
                line.close()
            self._called.notify_all()
        self._pool.shutdown(wait=False)

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                line = self._listener.accept()
                rank = int(line.recv_bytes(MOST_ORDER))
            except _BROKEN:
                continue
            if self._is_closed:
                line.close()
                break
            with self._called:
                if (old := self._members.pop(rank, None)) is not None:
                    old.close()
                self._members[rank] = line
                self._called.notify_all()
        self._listener.close()

    def _all(self, order: ReplicaOrder) -> None:
        with self._called:
            are_there = self._called.wait_for(lambda: self._is_closed or set(self._ranks) <= set(self._members), JOIN_S)
        if self._is_closed or not are_there:
            raise EngineError("the replica is closed" if self._is_closed else "a machine of the replica never called")
        calls = [self._pool.submit(self._tell, rank, order) for rank in self._ranks]
        for call in calls:
            call.exception()
        for call in calls:
            call.result()

    def _tell(self, rank: int, order: ReplicaOrder) -> None:
        line = self._members[rank]
        try:
            answer = _asked(line, order.model_dump_json().encode())
            for name in answer.wants:
                _send(line, Path(order.folder) / name)
            answer = _answer(line) if answer.wants else answer
        except _BROKEN as error:
            with self._called:
                if self._members.get(rank) is line:
                    del self._members[rank]  # it calls again
            raise EngineError(f"rank {rank} of the replica was lost: {error or type(error).__name__}") from error
        if answer.trouble:
            raise EngineError(f"rank {rank} of the replica: {answer.trouble}")


def _asked(line: Connection, order: bytes) -> ReplicaAnswer:
    line.send_bytes(order)
    return _answer(line)


def _answer(line: Connection) -> ReplicaAnswer:
    if not line.poll(ANSWER_S):
        raise TimeoutError(f"no answer for {ANSWER_S:.0f} s")
    return ReplicaAnswer.model_validate_json(line.recv_bytes(MOST_ORDER))


def _send(line: Connection, path: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            line.send_bytes(piece)
    line.send_bytes(digest.digest())


StartPart = Callable[[ReplicaOrder], None]
"""Ends this machine's part of the engine, if one runs, and starts another. Raises EngineError."""


class ReplicaMember:
    """Follows the head of its replica."""

    def __init__(self, address: tuple[str, int], key: bytes, rank: int, nodes: Path) -> None:
        """`address` is the head's; `nodes` the folder below which it may have files written on this machine."""
        self._address, self._key, self._rank, self._nodes = address, key, rank, nodes
        self._taken: list[Path] = []

    def follow(self, start: StartPart, end: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Obey until it is over; whenever the head is out of reach, end what runs and call again."""
        while not is_over():
            try:
                with self._called() as line:
                    self._obey(line, start, is_over)
            except _BROKEN as error:
                log.info("replica_head_away", reason=str(error) or type(error).__name__)
            end()
            if not is_over():
                time.sleep(AGAIN_S)

    @contextmanager
    def _called(self) -> Iterator[Connection]:
        line = Client(self._address, authkey=self._key)
        try:
            line.send_bytes(str(self._rank).encode())
            yield line
        finally:
            line.close()

    def _obey(self, line: Connection, start: StartPart, is_over: Callable[[], bool]) -> None:
        while not is_over():
            if not line.poll(AGAIN_S):
                continue
            order = ReplicaOrder.model_validate_json(line.recv_bytes(MOST_ORDER))
            try:
                if order.kind is OrderKind.TAKE:
                    self._take(line, order)
                else:
                    start(order)
                answer = ReplicaAnswer()
            except EngineError as error:
                answer = ReplicaAnswer(trouble=str(error))
            line.send_bytes(answer.model_dump_json().encode())

    def _take(self, line: Connection, order: ReplicaOrder) -> None:
        """Have the files of a folder. Raises EngineError for a folder that is none of a node's, or a broken file."""
        folder = Path(order.folder)
        if not folder.is_absolute() or ".." in folder.parts or self._nodes not in folder.parents:
            raise EngineError(f"{folder} is no folder of a node of this machine")
        wants = [one for one in order.files if not _is_there(folder / one.name, one.size)]
        if any(Path(one.name).name != one.name for one in wants):
            raise EngineError(f"{folder}: a file's name has a path in it")
        if not wants:
            return
        line.send_bytes(ReplicaAnswer(wants=tuple(one.name for one in wants)).model_dump_json().encode())
        folder.mkdir(parents=True, exist_ok=True)
        broken = [one.name for one in wants if not _received(line, folder / one.name, one.size)]
        if broken:
            raise EngineError(f"{folder}: {', '.join(broken)} came other than they were sent")
        self._forget_but(folder)

    def _forget_but(self, folder: Path) -> None:
        """Keep what was taken last and the version before it, as the head does."""
        self._taken = [*(one for one in self._taken if one != folder), folder]
        for old in self._taken[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        self._taken = self._taken[-2:]


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _received(line: Connection, path: Path, size: int) -> bool:
    """Write a file as it comes, and give it its name when its hash is right."""
    digest, left, part = hashlib.sha256(), size, path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        while left > 0:
            piece = line.recv_bytes(PIECE)
            left -= len(piece)
            digest.update(piece)
            file.write(piece)
    if line.recv_bytes(MOST_ORDER) != digest.digest() or left < 0:
        part.unlink()
        return False
    part.rename(path)
    return True
