"""Lines between machines: a key on both ends, and a deadline for whatever one waits for."""

import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from hexcloud.runtime import replica_socket
from hexcloud.runtime.replica_socket import BROKEN, DEAD_S, answer, call, cut, why, within

KEY, OTHER = b"0123456789abcdef", b"another"
HERE = "127.0.0.1"


class Ends:
    """Both ends of a line, or what became of them."""

    def __init__(self, caller_key: bytes = KEY, own_key: bytes = KEY) -> None:
        self.errors: list[BaseException] = []
        self.own: Connection | None = None
        self.caller: Connection | None = None
        self.word = b""
        with socket.create_server((HERE, 0)) as door:
            address = (HERE, int(door.getsockname()[1]))
            calling = threading.Thread(target=self._call, args=(address, caller_key))
            calling.start()
            try:
                self.own, self.word = answer(door.accept()[0], own_key)
            except BROKEN as error:
                self.errors.append(error)
            calling.join(10.0)

    def _call(self, address: tuple[str, int], key: bytes) -> None:
        try:
            self.caller = call(address, key, b"7")
        except BROKEN as error:
            self.errors.append(error)


@pytest.fixture
def line() -> Iterator[tuple[Connection, Connection]]:
    ends = Ends()
    assert ends.own is not None and ends.caller is not None and ends.word == b"7"
    yield ends.own, ends.caller
    ends.own.close()
    ends.caller.close()


def test_who_has_the_key_is_spoken_to(line: tuple[Connection, Connection]) -> None:
    own, caller = line
    own.send_bytes(b"hello")
    assert caller.recv_bytes() == b"hello"


@pytest.mark.parametrize(("caller_key", "own_key"), [(OTHER, KEY), (KEY, OTHER)])
def test_without_the_key_neither_end_gets_a_line(caller_key: bytes, own_key: bytes) -> None:
    ends = Ends(caller_key, own_key)
    assert ends.own is None and ends.caller is None and len(ends.errors) == 2


def test_a_caller_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_socket, "HANDSHAKE_S", 0.3)
    with socket.create_server((HERE, 0)) as door, socket.create_connection(door.getsockname()):
        begun_s = time.monotonic()
        with pytest.raises(BROKEN):
            answer(door.accept()[0], KEY)
    assert time.monotonic() - begun_s < 5.0


def test_a_caller_that_says_a_byte_now_and_then_is_let_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_socket, "HANDSHAKE_S", 0.5)
    with socket.create_server((HERE, 0)) as door, socket.create_connection(door.getsockname()) as slow:
        own = door.accept()[0]
        is_over = threading.Event()

        def drip() -> None:
            for byte in b"\x00\x00\x00\x40" + b"x" * 100:
                if is_over.wait(0.1):
                    return
                slow.sendall(bytes([byte]))

        dripping = threading.Thread(target=drip)
        dripping.start()
        begun_s = time.monotonic()
        with pytest.raises(BROKEN):
            answer(own, KEY)
        assert time.monotonic() - begun_s < 5.0
        is_over.set()
        dripping.join()


def test_who_listens_and_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_socket, "HANDSHAKE_S", 0.3)
    with socket.create_server((HERE, 0)) as door:
        begun_s = time.monotonic()
        with pytest.raises(BROKEN):
            call((HERE, int(door.getsockname()[1])), KEY, b"7")
    assert time.monotonic() - begun_s < 5.0


def test_who_speaks_of_other_things_is_no_peer() -> None:
    with socket.create_server((HERE, 0)) as door:

        def rubbish() -> None:
            caller, _ = door.accept()
            caller.sendall(b"\x00\x00\x00\x03abc")
            time.sleep(0.2)
            caller.close()

        talking = threading.Thread(target=rubbish)
        talking.start()
        with pytest.raises(BROKEN):
            call((HERE, int(door.getsockname()[1])), KEY, b"7")
        talking.join()


def test_a_message_that_stops_in_its_middle_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_socket, "STALL_S", 1.0)
    ends = Ends()
    assert ends.own is not None and ends.caller is not None
    with socket.socket(fileno=ends.caller.fileno()) as raw:
        raw.sendall(b"\x00\x00\x00\x10half")
        begun_s = time.monotonic()
        with pytest.raises(BlockingIOError) as stalled:
            ends.own.recv_bytes()
        assert 0.5 < time.monotonic() - begun_s < 5.0
        assert why(stalled.value) == "nothing came or went for 1 s"
        raw.detach()


def test_a_reader_is_woken_when_its_line_is_cut_or_its_time_is_over(line: tuple[Connection, Connection]) -> None:
    own, caller = line
    threading.Timer(0.2, cut, (own,)).start()
    with pytest.raises(EOFError):
        own.recv_bytes()
    with pytest.raises(EOFError), within(caller, 0.2):
        caller.recv_bytes()


def test_the_kernel_asks_whether_a_machine_is_there(line: tuple[Connection, Connection]) -> None:
    for end in line:
        with socket.socket(fileno=end.fileno()) as raw:
            assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle_s, ask_s, asks = (
                raw.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle_s + ask_s * asks == DEAD_S <= 60
            raw.detach()
