import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hexcloud.adapters.engines import line as line_module
from hexcloud.adapters.engines.line import EngineLine, EngineRefusedError
from hexcloud.domain.errors import EngineError
from tests.adapters.engines.odd_server import OddServer, odd_server


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with odd_server() as server:
        yield server


@pytest.fixture
def line(odd: OddServer) -> Iterator[EngineLine]:
    line = EngineLine(odd.url)
    yield line
    line.close()


def test_a_refusal_carries_its_status_and_the_engines_words(line: EngineLine, odd: OddServer) -> None:
    odd.answers["/x"] = 400, {"message": "begin first"}
    with pytest.raises(EngineRefusedError, match="begin first") as refused:
        line.tell("/x", {})
    assert refused.value.status == 400
    with pytest.raises(EngineRefusedError) as unknown:
        line.ask("GET", "/nowhere")
    assert unknown.value.status == 404


@pytest.mark.parametrize("content", [b"", b"Cache flushed.", b"null", b'{"success": true, "message": "fine"}'])
def test_a_command_may_be_answered_by_anything_but_an_error(line: EngineLine, odd: OddServer, content: bytes) -> None:
    odd.answers["/x"] = 200, content
    line.tell("/x", {"a": 1})
    assert odd.asked == [("/x", {"a": 1})]


def test_an_answer_that_was_asked_for_must_be_json(line: EngineLine, odd: OddServer) -> None:
    odd.answers["/x"] = 200, b"<html>"
    with pytest.raises(EngineError, match="no JSON"):
        line.ask("GET", "/x")


def test_an_answer_that_never_ends_is_given_up(line: EngineLine, odd: OddServer) -> None:
    odd.answers["/x"] = 200, b"[1]" * 100
    odd.drip_s = 0.1
    begun_s = time.monotonic()
    with pytest.raises(EngineError, match="did not end within"):
        line.ask("GET", "/x", timeout_s=0.5)
    assert time.monotonic() - begun_s < 10.0


def test_an_answer_without_end_is_not_kept(line: EngineLine, odd: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "MAX_ANSWER_BYTES", 1000)
    odd.answers["/x"] = 200, b"1" * 5000
    with pytest.raises(EngineError, match="over 1000 bytes"):
        line.ask("GET", "/x")


def test_a_look_never_raises(line: EngineLine, odd: OddServer) -> None:
    odd.answers["/ready"] = 503, {}
    assert (line.look("/ready"), line.look("/nowhere")) == (503, 404)
    line.close()
    assert line.look("/ready") is None


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200", b"nonsense\r\n", b"HTTP/1.1 2OO\r\n"])
def test_a_look_at_what_drips_or_speaks_otherwise_ends_in_time(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx would wait for each byte anew."""
    monkeypatch.setattr(line_module, "LOOK_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server, begins), daemon=True).start()
        dripping, begun_s = EngineLine(f"http://127.0.0.1:{server.getsockname()[1]}"), time.monotonic()
        assert dripping.look("/health") is None
        assert time.monotonic() - begun_s < 5.0
        dripping.close()


def _drip(server: socket.socket, begins: bytes) -> None:
    connection, _ = server.accept()
    with connection, suppress(OSError):
        connection.sendall(begins)
        for _ in range(200):
            connection.sendall(b"0")
            time.sleep(0.1)
