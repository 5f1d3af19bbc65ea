import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hexcloud.adapters.certificates import RunAuthority, server_context
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Batch, Evaluation, Rendezvous
from hexcloud.runtime.trainer_link import TrainerLink


class Answers(BaseHTTPRequestHandler):
    """Answers GET with an empty batch, and POST with 409; remembers what it was told."""

    heard: list[str]

    def do_GET(self) -> None:
        self.heard.append(self.headers["Authorization"])
        self._answer(200, Batch(version=3).model_dump_json())

    def do_POST(self) -> None:
        self.heard.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(409, "a contradiction")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    Answers.heard = []
    made = HTTPServer(("127.0.0.1", 0), Answers, bind_and_activate=False)
    made.server_bind()  # it listens when a test says so
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def link(server: HTTPServer) -> Iterator[TrainerLink]:
    made = TrainerLink(f"http://127.0.0.1:{server.server_port}", "token")
    yield made
    made.close()


def listen(server: HTTPServer, after_s: float = 0.0) -> None:
    def run() -> None:
        time.sleep(after_s)
        server.server_activate()
        server.serve_forever(poll_interval=0.02)

    threading.Thread(target=run, daemon=True).start()


def test_a_coordinator_that_comes_later_is_waited_for(server: HTTPServer, link: TrainerLink) -> None:
    listen(server, after_s=0.5)
    assert link.batch() == Batch(version=3)
    assert Answers.heard == ["Bearer token"]


def test_an_answer_that_says_nothing_of_the_world_is_an_error(server: HTTPServer, link: TrainerLink) -> None:
    listen(server)
    with pytest.raises(EngineError, match="/rendezvous"):
        link.rendezvous(Rendezvous(generation=1, store="", is_begun=True))


def test_a_refusal_is_not_repeated(server: HTTPServer, link: TrainerLink) -> None:
    listen(server)
    with pytest.raises(EngineError, match=r"/evaluation: 409 a contradiction"):
        link.evaluation(Evaluation(when="before", accuracy=0.5))
    assert Answers.heard == [Evaluation(when="before", accuracy=0.5).model_dump_json()]


@pytest.mark.parametrize("url", ["http://192.0.2.1:8477", "http://example.com"])
def test_the_token_goes_nowhere_beyond_this_machine_without_tls(url: str) -> None:
    with pytest.raises(EngineError, match="no token is sent there"):
        TrainerLink(url, "token")


def test_a_coordinator_of_another_run_is_not_spoken_to(server: HTTPServer) -> None:
    mine, other = RunAuthority(b"k" * 32, 1_790_000_000.0), RunAuthority(b"x" * 32, 1_790_000_000.0)
    head = NodeId("run.trainer-0.0")
    context = server_context(mine.certificate(head), mine.private_key(head))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"https://127.0.0.1:{server.server_address[1]}"
    trusting, doubting = TrainerLink(url, "token", mine.ca_pem), TrainerLink(url, "token", other.ca_pem, patience_s=0.1)
    assert trusting.batch() == Batch(version=3)
    with pytest.raises(EngineError, match="CERTIFICATE_VERIFY_FAILED"):
        doubting.batch()
    assert Answers.heard == ["Bearer token"]
    trusting.close()
    doubting.close()
    server.shutdown()
    thread.join(5)
