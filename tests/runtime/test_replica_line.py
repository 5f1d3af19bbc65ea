"""A head and its members over real sockets: files that come whole, orders that are answered, lines that break."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.domain.replica import OrderKind, ReplicaAnswer, ReplicaFile, ReplicaOrder
from hexcloud.runtime import replica_line, replica_socket
from hexcloud.runtime.replica_line import MOST_AT_THE_DOOR, PIECE, ReplicaHead, ReplicaMember

KEY = b"0123456789abcdef"
HERE = "127.0.0.1"


class Machine:
    """A member on its thread, and what it was told to start."""

    def __init__(self, port: int, rank: int, nodes: Path) -> None:
        self.started: list[ReplicaOrder] = []
        self.ends = 0
        self.trouble = ""
        self.gone = ""
        self._member = ReplicaMember((HERE, port), KEY, rank, nodes)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            self._member.follow(self.start, self.end)
        except EngineError as error:
            self.gone = str(error)

    def start(self, order: ReplicaOrder) -> None:
        if self.trouble:
            raise EngineError(self.trouble)
        self.started.append(order)

    def end(self) -> None:
        self.ends += 1

    def leave(self) -> None:
        self._member.leave()
        self._thread.join(10.0)
        assert not self._thread.is_alive()


@pytest.fixture
def head() -> Iterator[ReplicaHead]:
    head = ReplicaHead((HERE, 0), KEY, 2)
    yield head
    head.close()


@pytest.fixture
def members(head: ReplicaHead, tmp_path: Path) -> Iterator[list[Machine]]:
    members = [Machine(head.port, rank, tmp_path) for rank in (1, 2)]
    yield members
    for member in members:
        member.leave()


def order(folder: Path, version: int = 3) -> ReplicaOrder:
    return ReplicaOrder(kind=OrderKind.START, folder=str(folder), version=version, rendezvous="10.0.0.1:5")


def until(is_so: Callable[[], bool], within_s: float = 10.0) -> None:
    gives_up_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < gives_up_at
        time.sleep(0.02)


def test_every_member_starts_its_part(head: ReplicaHead, members: list[Machine], tmp_path: Path) -> None:
    head.start(order(tmp_path))
    assert [one.started for one in members] == [[order(tmp_path)]] * 2


def test_members_on_the_same_disk_are_sent_nothing(head: ReplicaHead, members: list[Machine], tmp_path: Path) -> None:
    folder = tmp_path / "0" / "weights"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    head.hand_on(folder)
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_the_head_sends_what_a_member_lacks_with_its_hash(tmp_path: Path) -> None:
    content = os.urandom(PIECE + 7)
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    head = ReplicaHead((HERE, 0), KEY, 1)
    handing = threading.Thread(target=head.hand_on, args=(tmp_path,))
    with Client((HERE, head.port), authkey=KEY) as line:
        line.send_bytes(b"1")
        handing.start()
        told = ReplicaOrder.model_validate_json(line.recv_bytes())
        assert told.files == (
            ReplicaFile(name="config.json", size=2),
            ReplicaFile(name="model.safetensors", size=len(content)),
        )
        line.send_bytes(ReplicaAnswer(wants=("model.safetensors",)).model_dump_json().encode())
        came = line.recv_bytes() + line.recv_bytes()
        assert came == content and line.recv_bytes() == hashlib.sha256(content).digest()
        line.send_bytes(ReplicaAnswer().model_dump_json().encode())
        handing.join(10.0)
    assert not handing.is_alive()
    head.close()


class Elsewhere:
    """A head by hand, whose disk is not the member's."""

    def __init__(self, nodes: Path) -> None:
        self._listener = Listener((HERE, 0), authkey=KEY)
        self.member = Machine(int(self._listener.address[1]), 1, nodes)
        self.line = self._listener.accept()
        assert self.line.recv_bytes() == b"1"

    def hands_on(self, folder: Path, content: bytes, digest: bytes = b"", name: str = "model.safetensors") -> str:
        """Send one file and return the member's trouble."""
        files = (ReplicaFile(name=name, size=len(content)),)
        take = ReplicaOrder(kind=OrderKind.TAKE, folder=str(folder), files=files)
        self.line.send_bytes(take.model_dump_json().encode())
        if (answer := self._answer()).wants:
            self.line.send_bytes(content)
            self.line.send_bytes(digest or hashlib.sha256(content).digest())
            answer = self._answer()
        return answer.trouble

    def _answer(self) -> ReplicaAnswer:
        return ReplicaAnswer.model_validate_json(self.line.recv_bytes())

    def close(self) -> None:
        self.line.close()
        self._listener.close()
        self.member.leave()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(tmp_path)
    yield elsewhere
    elsewhere.close()


def test_files_come_whole_and_the_two_newest_versions_are_kept(elsewhere: Elsewhere, tmp_path: Path) -> None:
    folders = [tmp_path / "0" / "weights" / f"0-{version}-abc" for version in range(3)]
    for version, folder in enumerate(folders):
        assert elsewhere.hands_on(folder, bytes([version]) * 100) == ""
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert (folders[2] / "model.safetensors").read_bytes() == bytes([2]) * 100
    assert [path.name for path in folders[2].iterdir()] == ["model.safetensors"], "no part is left"


def test_a_file_that_came_other_than_it_was_sent_is_none(elsewhere: Elsewhere, tmp_path: Path) -> None:
    folder = tmp_path / "0" / "weights"
    assert "came other than they were sent" in elsewhere.hands_on(folder, b"abc", b"wrong")
    assert list(folder.iterdir()) == []
    assert elsewhere.hands_on(folder, b"abc") == "", "and is sent again"


@pytest.mark.parametrize("folder", ["/etc", "weights", "{nodes}/../x", "{nodes}"])
def test_nothing_is_written_but_below_the_nodes_folders(elsewhere: Elsewhere, tmp_path: Path, folder: str) -> None:
    assert "no folder of a node" in elsewhere.hands_on(Path(folder.format(nodes=tmp_path)), b"abc")


def test_no_files_name_leads_out_of_its_folder(elsewhere: Elsewhere, tmp_path: Path) -> None:
    assert "has a path in it" in elsewhere.hands_on(tmp_path / "0", b"abc", name="../x")


def test_a_member_whose_head_is_away_ends_its_part_and_calls_again(tmp_path: Path) -> None:
    head = ReplicaHead((HERE, 0), KEY, 1)
    member = Machine(head.port, 1, tmp_path)
    head.start(order(tmp_path))
    head.close()
    until(lambda: member.ends >= 1)
    again = ReplicaHead((HERE, head.port), KEY, 1)
    again.start(order(tmp_path, version=4))
    assert [one.version for one in member.started] == [3, 4]
    member.leave()
    again.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everybody as impatient as a test is."""
    for name, seconds in {"GONE_S": 3.0, "SILENT_S": 2.0, "BEAT_S": 0.1, "AGAIN_S": 0.1}.items():
        monkeypatch.setattr(replica_line, name, seconds)
    monkeypatch.setattr(replica_socket, "HANDSHAKE_S", 1.0)


@pytest.mark.usefixtures("hasty")
def test_a_member_that_never_called_is_missed(head: ReplicaHead, tmp_path: Path) -> None:
    assert head.lost is None
    with pytest.raises(EngineError, match=r"ranks \[1, 2\] of the replica have not called"):
        head.start(order(tmp_path))
    assert head.lost == 1


@pytest.mark.usefixtures("hasty")
def test_a_member_that_went_is_gone_after_a_while_although_nothing_is_asked_of_it(
    head: ReplicaHead, members: list[Machine], tmp_path: Path
) -> None:
    head.start(order(tmp_path))
    members[1].leave()
    until(lambda: head.lost == 2)


@pytest.mark.usefixtures("hasty")
def test_idle_members_of_a_head_that_is_there_stay(head: ReplicaHead, members: list[Machine], tmp_path: Path) -> None:
    time.sleep(4.0)
    assert head.lost is None and [one.gone for one in members] == ["", ""]
    head.start(order(tmp_path))
    assert [one.ends for one in members] == [0, 0]


@pytest.mark.usefixtures("hasty")
def test_a_member_whose_head_is_gone_gives_up(tmp_path: Path) -> None:
    head = ReplicaHead((HERE, 0), KEY, 1)
    member = Machine(head.port, 1, tmp_path)
    head.start(order(tmp_path))
    head.close()
    until(lambda: "has said nothing" in member.gone)
    assert member.ends >= 1, "and its part of the engine has ended"


@pytest.mark.usefixtures("hasty")
def test_a_member_whose_head_falls_silent_gives_up(tmp_path: Path) -> None:
    """It is stopped, or its machine hangs: its line stays open, and nobody speaks there."""
    with Listener((HERE, 0), authkey=KEY) as listener:
        member = Machine(int(listener.address[1]), 1, tmp_path)
        lines = [listener.accept()]
        threading.Thread(target=lambda: lines.append(listener.accept()), daemon=True).start()
        until(lambda: bool(member.gone))


def test_a_silent_caller_keeps_nobody_out(head: ReplicaHead, tmp_path: Path) -> None:
    silent = [socket.create_connection((HERE, head.port)) for _ in range(4)]
    begun_s = time.monotonic()
    members = [Machine(head.port, rank, tmp_path) for rank in (1, 2)]
    head.start(order(tmp_path))
    assert time.monotonic() - begun_s < 5.0
    for one in silent:
        one.close()
    for member in members:
        member.leave()


def test_more_callers_than_there_is_room_for_are_turned_away_and_no_line_is_lost(
    head: ReplicaHead, members: list[Machine], tmp_path: Path
) -> None:
    head.start(order(tmp_path))
    crowd = [socket.create_connection((HERE, head.port)) for _ in range(MOST_AT_THE_DOOR + 4)]
    until(lambda: sum(_is_turned_away(one) for one in crowd) >= 4)
    head.start(order(tmp_path))
    for one in crowd:
        one.close()


def _is_turned_away(caller: socket.socket) -> bool:
    caller.settimeout(0.02)
    try:
        while said := caller.recv(4096):
            if not said:
                break
        return True
    except TimeoutError:
        return False


def test_a_member_leaves_at_once_whatever_its_head_is_about(elsewhere: "Elsewhere", tmp_path: Path) -> None:
    """The head has announced a file, and sends nothing of it."""
    files = (ReplicaFile(name="model.safetensors", size=100),)
    take = ReplicaOrder(kind=OrderKind.TAKE, folder=str(tmp_path / "0" / "weights"), files=files)
    elsewhere.line.send_bytes(take.model_dump_json().encode())
    assert ReplicaAnswer.model_validate_json(elsewhere.line.recv_bytes()).wants
    begun_s = time.monotonic()
    elsewhere.member.leave()
    assert time.monotonic() - begun_s < 5.0


def test_what_a_broken_line_has_left_goes_with_its_version(elsewhere: "Elsewhere", tmp_path: Path) -> None:
    folders = [tmp_path / "0" / "weights" / f"0-{version}-abc" for version in range(3)]
    assert "came other" in elsewhere.hands_on(folders[0], b"abc", b"wrong")
    for folder in folders[1:]:
        assert elsewhere.hands_on(folder, b"abc") == ""
    assert [folder.exists() for folder in folders] == [False, True, True]


def test_a_closed_head_gives_up_at_once(tmp_path: Path) -> None:
    head = ReplicaHead((HERE, 0), KEY, 1)
    threading.Timer(0.2, head.close).start()
    begun_s = time.monotonic()
    with pytest.raises(EngineError, match="closed"):
        head.start(order(tmp_path))
    assert time.monotonic() - begun_s < 10.0


def test_a_member_that_cannot_says_why(head: ReplicaHead, members: list[Machine], tmp_path: Path) -> None:
    members[1].trouble = "no GPU here"
    with pytest.raises(EngineError, match="rank 2 of the replica: no GPU here"):
        head.start(order(tmp_path))


def test_who_has_another_key_is_not_spoken_to(head: ReplicaHead) -> None:
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        Client((HERE, head.port), authkey=b"another")
