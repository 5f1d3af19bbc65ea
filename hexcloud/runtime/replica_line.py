"""ReplicaLine: how a replica's head leads its other machines: which weights to have, and which engine to start.

An engine loads new weights by one folder's name on all its machines, so the head hands every version on to the others
before it loads it. Machines of a replica stand in one zone and share a network of their own; who speaks there proves
the replica's key first, both ways, and nothing but JSON and bytes of files is ever read.
"""

import hashlib
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BoundedSemaphore, Condition, Event, Lock, Thread

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.replica import OrderKind, ReplicaAnswer, ReplicaFile, ReplicaOrder
from hexcloud.runtime.replica_socket import BROKEN, STALL_S, answer, call, cut, why

GONE_S = 300.0
"""Machines of a replica came up in one call: one that has been away for longer is gone, and the replica with it."""
SILENT_S = 60.0
"""A head that has said nothing for so long is away."""
BEAT_S = 10.0
"""Between two words of the head to who has nothing to do."""
ANSWER_S = 600.0
"""For an answer: a member reads and hashes no more than what it was sent."""
AGAIN_S = 1.0
PIECE = 4 << 20
MOST_ORDER = 1 << 20
"""Bytes of an order or an answer."""
KEPT = 2
"""Versions on a member's disk: what comes, and the one before."""
MOST_AT_THE_DOOR = 32
"""Callers that prove themselves at the same time; others call again."""

log = structlog.get_logger()


class _Line:
    """To one member. Who speaks there holds the lock."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock = Lock()


class ReplicaHead:
    """Speaks to all members at once. Methods block, and raise EngineError when one member cannot."""

    def __init__(self, address: tuple[str, int], key: bytes, members: int) -> None:
        """`members` are the other machines, with ranks from 1 on."""
        self._door, self._key = socket.create_server(address, backlog=MOST_AT_THE_DOOR), key
        self._at_the_door = BoundedSemaphore(MOST_AT_THE_DOOR)
        self._members: dict[int, _Line] = {}
        self._called, self._count = Condition(), members
        self._away_since = dict.fromkeys(range(1, members + 1), time.monotonic())
        self._closed = Event()
        self._pool = ThreadPoolExecutor(2 * members, thread_name_prefix="replica")
        self.port = int(self._door.getsockname()[1])
        for name, loop in (("replica-door", self._listen), ("replica-beat", self._stay_in_touch)):
            Thread(target=loop, daemon=True, name=name).start()

    @property
    def lost(self) -> int | None:
        """The rank of a machine that is gone, if one is: the replica works no more."""
        now_s = time.monotonic()
        with self._called:
            return next((rank for rank, since_s in self._away_since.items() if now_s - since_s > GONE_S), None)

    def hand_on(self, folder: Path) -> None:
        """Let every member have the files of a folder, under the same name."""
        files = tuple(ReplicaFile(name=path.name, size=path.stat().st_size) for path in sorted(folder.iterdir()))
        self._all(ReplicaOrder(kind=OrderKind.TAKE, folder=str(folder), files=files))

    def start(self, order: ReplicaOrder) -> None:
        """Let every member start its part of an engine."""
        self._all(order)

    def close(self) -> None:
        """Speak to nobody any more; members end their part of the engine then."""
        self._closed.set()
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # who waits for a call wakes up
        self._door.close()
        with self._called:
            for line in self._members.values():
                cut(line.connection)
            self._called.notify_all()
        self._pool.shutdown(wait=False)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                caller, _ = self._door.accept()
            except OSError:
                self._closed.wait(AGAIN_S)
                continue
            if not self._at_the_door.acquire(blocking=False):
                caller.close()
                continue
            Thread(target=self._let_in, args=(caller,), daemon=True, name="replica-caller").start()

    def _let_in(self, caller: socket.socket) -> None:
        """Make a caller a member once it has proved the key and said its rank; one that is silent is cut off."""
        try:
            line, word = answer(caller, self._key)
        except BROKEN:
            return
        finally:
            caller.close()
            self._at_the_door.release()
        with self._called:
            rank = int(word) if word.isdigit() else 0
            if self._closed.is_set() or not 1 <= rank <= self._count:
                line.close()
                return
            if (old := self._members.get(rank)) is not None:
                cut(old.connection)
            self._members[rank] = _Line(line)
            self._away_since.pop(rank, None)
            self._called.notify_all()

    def _stay_in_touch(self) -> None:
        """Let members that have nothing to do know that the head is there, and notice who is not."""
        here = ReplicaOrder(kind=OrderKind.STAY)
        beats: dict[int, Future[None]] = {}
        while not self._closed.wait(BEAT_S):
            with self._called:
                idle = [rank for rank, line in self._members.items() if not line.lock.locked()]
            for rank in idle:
                if rank not in beats or beats[rank].done():
                    with suppress(RuntimeError):  # closed just now
                        beats[rank] = self._pool.submit(self._tell, rank, here, STALL_S)

    def _all(self, order: ReplicaOrder) -> None:
        with self._called:
            longest_s = time.monotonic() - min(self._away_since.values(), default=0.0)
            self._called.wait_for(lambda: self._closed.is_set() or not self._away_since, max(0.0, GONE_S - longest_s))
            missing = sorted(self._away_since)
        if self._closed.is_set():
            raise EngineError("the replica is closed")
        if missing:
            raise EngineError(f"ranks {missing} of the replica have not called for {GONE_S:.0f} s")
        calls = [self._pool.submit(self._tell, rank, order) for rank in range(1, 1 + self._count)]
        for told in calls:
            told.exception()
        for told in calls:
            told.result()

    def _tell(self, rank: int, order: ReplicaOrder, within_s: float = ANSWER_S) -> None:
        with self._called:
            line = self._members.get(rank)
        if line is None:
            raise EngineError(f"rank {rank} of the replica is away")
        with line.lock:
            try:
                said = _told(line.connection, order, within_s)
            except BROKEN as error:
                self._miss(rank, line)
                raise EngineError(f"rank {rank} of the replica was lost: {why(error)}") from error
        if said.trouble:
            raise EngineError(f"rank {rank} of the replica: {said.trouble}")

    def _miss(self, rank: int, line: _Line) -> None:
        """Note that a member is away; it may call again."""
        with self._called:
            if self._members.get(rank) is line:
                del self._members[rank]
                self._away_since[rank] = time.monotonic()
        line.connection.close()


def _told(line: Connection, order: ReplicaOrder, within_s: float) -> ReplicaAnswer:
    """Give an order, and the files that it takes; return the answer. Raises one of BROKEN."""
    line.send_bytes(order.model_dump_json().encode())
    said = _answer(line, within_s)
    if not said.wants:
        return said
    for name in said.wants:
        _send(line, Path(order.folder) / name)
    return _answer(line, within_s)


def _answer(line: Connection, within_s: float) -> ReplicaAnswer:
    if not line.poll(within_s):
        raise TimeoutError(f"no answer for {within_s:.0f} s")
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
        self._over = Event()
        self._line: Connection | None = None

    def follow(self, start: StartPart, end: Callable[[], None]) -> None:
        """Obey until `leave`; whenever the head is out of reach, end what runs and call again.

        Raises EngineError when the head is gone: then this machine is of no use.
        """
        away_since_s = time.monotonic()
        while not self._over.is_set():
            is_heard = False
            try:
                with closing(call(self._address, self._key, str(self._rank).encode())) as self._line:
                    for _ in self._obeyed(self._line, start):
                        is_heard = True
            except BROKEN as error:
                log.info("replica_head_away", reason=why(error))
            end()
            if is_heard:
                away_since_s = time.monotonic()
            if time.monotonic() - away_since_s > GONE_S:
                raise EngineError(f"the replica's head has said nothing for {GONE_S:.0f} s")
            self._over.wait(AGAIN_S)

    def leave(self) -> None:
        """Let `follow` return soon; from another thread."""
        self._over.set()
        if (line := self._line) is not None:
            cut(line)

    def _obeyed(self, line: Connection, start: StartPart) -> Iterator[ReplicaOrder]:
        """Yield each order that was heard, then obey it. Raises one of BROKEN, also when the head falls silent."""
        heard_s = time.monotonic()
        while not self._over.is_set():
            if not line.poll(AGAIN_S):
                if time.monotonic() - heard_s > SILENT_S:
                    raise TimeoutError(f"it has said nothing for {SILENT_S:.0f} s")
                continue
            order = ReplicaOrder.model_validate_json(line.recv_bytes(MOST_ORDER))
            yield order
            line.send_bytes(self._answered(line, order, start).model_dump_json().encode())
            heard_s = time.monotonic()

    def _answered(self, line: Connection, order: ReplicaOrder, start: StartPart) -> ReplicaAnswer:
        try:
            if order.kind is OrderKind.TAKE:
                self._take(line, order)
            elif order.kind is OrderKind.START:
                start(order)
        except EngineError as error:
            return ReplicaAnswer(trouble=str(error))
        return ReplicaAnswer()

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
        self._make_room(folder)
        line.send_bytes(ReplicaAnswer(wants=tuple(one.name for one in wants)).model_dump_json().encode())
        broken = [one.name for one in wants if not _received(line, folder / one.name, one.size)]
        if broken:
            raise EngineError(f"{folder}: {', '.join(broken)} came other than they were sent")

    def _make_room(self, folder: Path) -> None:
        """Keep the version before, which the engine may still read, and what there is of this one.

        It is done before anything comes: what a broken line leaves behind is of some version, and goes with it.
        """
        self._taken = [*(one for one in self._taken if one != folder), folder]
        for old in self._taken[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._taken = self._taken[-KEPT:]
        folder.mkdir(parents=True, exist_ok=True)


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
