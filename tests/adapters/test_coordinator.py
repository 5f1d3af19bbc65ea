import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hexcloud.adapters.certificates import RunAuthority, server_context
from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.domain.errors import EngineError, UnreadableError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import sign_pointer
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.world import GangPlan
from tests.node.switched_bucket import SwitchedBucket

RUN = RunId("main-1")
SECRET = "run-secret"
VIEW = RunView(
    run_id=RUN,
    phase=RunPhase.TRAINING,
    epoch=0,
    version=1,
    steps=2,
    trained_samples=256,
    dropped_samples=0,
    first_step_at_s=1.0,
    last_step_at_s=2.0,
    staleness_histogram={0: 256},
    reward=0.5,
    samples_per_wall_s=256.0,
    overlap_share=1.0,
    trainer_wait_s=0.0,
    outstanding=0,
    checkpoint_version=0,
)


class Peer(ThreadingHTTPServer):
    """The far end of the line: remembers what it was asked and gives a fixed answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PeerHandler)
        self.asked: list[tuple[str, str, str, object]] = []
        self.status = 200
        self.answer = VIEW.model_dump_json()
        self.delay_s = 0.0
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def secure(self, context: ssl.SSLContext) -> None:
        """Take TLS only, from the next caller on."""
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class PeerHandler(BaseHTTPRequestHandler):
    server: Peer

    def do_GET(self) -> None:
        self.reply()

    def do_POST(self) -> None:
        self.reply()

    def reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(
            (self.command, self.path, self.headers["Authorization"], json.loads(body) if body else None)
        )
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.shutdown()
    peer.server_close()


@pytest.fixture
def pointer_path(tmp_path: Path, peer: Peer) -> Path:
    path = tmp_path / "coordinator.json"
    point(path, peer.url)
    return path


@pytest.fixture
def coordinator(pointer_path: Path) -> Iterator[HttpCoordinator]:
    coordinator = HttpCoordinator(pointer_path, Credentials(run_id=RUN, secret=SECRET, token="t0ken"), timeout_s=0.5)
    yield coordinator
    coordinator.close()


def point(path: Path, url: str, epoch: int = 0, secret: str = SECRET, run_id: RunId = RUN) -> None:
    path.write_text(sign_pointer(run_id, url, epoch, secret).model_dump_json())


def test_the_view_comes_from_status_with_the_controllers_token(coordinator: HttpCoordinator, peer: Peer) -> None:
    assert coordinator.view() == VIEW
    assert peer.asked == [("GET", "/status", "Bearer t0ken", None)]


def test_each_order_is_one_post(coordinator: HttpCoordinator, peer: Peer) -> None:
    coordinator.renew(99.5, GangPlan(machines=2, layout=LayoutKind.HSDP))
    coordinator.admit(NodeId("a"), "00ff", Role.TRAINER, revoke=(NodeId("b"),))
    coordinator.drain(NodeId("a"))
    coordinator.stop("budget")
    assert [(method, path, body) for method, path, _, body in peer.asked] == [
        (
            "POST",
            "/control/renew",
            {"run_until_s": 99.5, "gang": {"machines": 2, "layout": "hsdp", "pass_tokens": 8192}},
        ),
        ("POST", "/control/admit", {"node_id": "a", "token_sha256": "00ff", "role": "trainer", "revoke": ["b"]}),
        ("POST", "/control/drain", {"node_id": "a"}),
        ("POST", "/control/stop", {"reason": "budget"}),
    ]


def test_a_coordinator_that_moved_is_found_again(
    coordinator: HttpCoordinator, peer: Peer, pointer_path: Path, tmp_path: Path
) -> None:
    coordinator.view()
    point(pointer_path, "http://127.0.0.1:1", epoch=1)
    coordinator.view()
    peer.status = 503
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1"):
        coordinator.view()
    peer.status = 200
    point(pointer_path, peer.url, epoch=2)
    assert coordinator.view() == VIEW


def test_no_pointer_yet_is_an_engine_error(coordinator: HttpCoordinator, pointer_path: Path) -> None:
    pointer_path.unlink()
    with pytest.raises(EngineError, match="no pointer"):
        coordinator.view()


@pytest.mark.parametrize("text", ["", "{", '{"run_id": "main-1"}'])
def test_a_torn_pointer_is_an_engine_error(coordinator: HttpCoordinator, pointer_path: Path, text: str) -> None:
    pointer_path.write_text(text)
    with pytest.raises(EngineError):
        coordinator.view()


def test_a_pointer_that_another_hand_signed_is_not_followed(
    coordinator: HttpCoordinator, pointer_path: Path, peer: Peer
) -> None:
    point(pointer_path, peer.url, secret="guess")
    with pytest.raises(EngineError, match="not signed"):
        coordinator.view()
    point(pointer_path, peer.url, run_id=RunId("other"))
    with pytest.raises(EngineError, match="not signed"):
        coordinator.view()
    assert peer.asked == []


def test_an_old_pointer_is_not_followed(coordinator: HttpCoordinator, pointer_path: Path, peer: Peer) -> None:
    point(pointer_path, peer.url, epoch=5)
    coordinator.view()
    peer.status = 500
    point(pointer_path, "http://127.0.0.1:1", epoch=4)
    with pytest.raises(EngineError, match="epoch 4"):
        coordinator.view()


def test_silence_is_an_engine_error_within_the_timeout(coordinator: HttpCoordinator, peer: Peer) -> None:
    peer.delay_s = 1.5
    with pytest.raises(EngineError, match=r"GET /status.*[Tt]imed? ?out"):
        coordinator.view()


@pytest.mark.parametrize(("status", "answer"), [(401, ""), (500, "oops"), (200, "{}"), (200, "<html>")])
def test_any_other_answer_is_an_engine_error(
    coordinator: HttpCoordinator, peer: Peer, status: int, answer: str
) -> None:
    peer.status, peer.answer = status, answer
    with pytest.raises(EngineError) as raised:
        coordinator.view()
    assert isinstance(raised.value, UnreadableError) == (status != 401), "whoever says so does not know us"


@pytest.mark.parametrize("url", ["", "not a url", "http://[::1", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_an_engine_error(coordinator: HttpCoordinator, pointer_path: Path, url: str) -> None:
    point(pointer_path, url)
    with pytest.raises(EngineError):
        coordinator.view()


def test_credentials_never_show_themselves() -> None:
    shown = Credentials(run_id=RUN, secret="hush", token="quiet")
    assert "hush" not in f"{shown!r}{shown}"
    assert "quiet" not in f"{shown!r}{shown}"


def test_a_coordinator_proves_itself_by_the_runs_authority(peer: Peer, pointer_path: Path) -> None:
    mine, other = RunAuthority(b"k" * 32, 1_790_000_000.0), RunAuthority(b"x" * 32, 1_790_000_000.0)
    head = NodeId("main-1.trainer-0.1")
    peer.secure(server_context(mine.certificate(head), mine.private_key(head)))
    point(pointer_path, peer.url.replace("http:", "https:"), epoch=1)
    for authority, is_trusted in ((mine, True), (other, False)):
        credentials = Credentials(run_id=RUN, secret=SECRET, token="t0ken", ca_pem=authority.ca_pem)
        line = HttpCoordinator(pointer_path, credentials, timeout_s=2.0)
        if is_trusted:
            assert line.view() == VIEW
        else:
            with pytest.raises(EngineError, match="CERTIFICATE_VERIFY_FAILED"):
                line.view()
        line.close()
    assert len(peer.asked) == 1, "the token was told once, to the right one"


def test_the_token_goes_nowhere_beyond_this_machine_without_tls(
    coordinator: HttpCoordinator, pointer_path: Path
) -> None:
    point(pointer_path, "http://192.0.2.1:8477")
    with pytest.raises(EngineError, match="no token is sent there"):
        coordinator.view()


@pytest.fixture
def bucket(tmp_path: Path) -> SwitchedBucket:
    return SwitchedBucket(tmp_path / "store")


@pytest.fixture
def remote(tmp_path: Path, bucket: SwitchedBucket) -> Iterator[HttpCoordinator]:
    """The line to a coordinator whose pointer is in a store; our copy of it is in a folder of our own."""
    (tmp_path / "own").mkdir()
    credentials = Credentials(run_id=RUN, secret=SECRET, token="t0ken")
    line = HttpCoordinator(tmp_path / "own" / "coordinator.json", credentials, timeout_s=0.5, objects=bucket)
    yield line
    line.close()


def store(bucket: SwitchedBucket, url: str, epoch: int = 0, secret: str = SECRET) -> None:
    bucket.put("coordinator.json", sign_pointer(RUN, url, epoch, secret).model_dump_json().encode())


def test_a_pointer_in_the_runs_store_is_followed_wherever_it_moves(
    remote: HttpCoordinator, bucket: SwitchedBucket, peer: Peer
) -> None:
    with pytest.raises(EngineError, match="no pointer"):
        remote.view()
    store(bucket, "http://127.0.0.1:1")
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1"):
        remote.view()
    store(bucket, peer.url, epoch=4)
    assert remote.view() == VIEW


def test_a_controller_that_restarts_while_the_store_is_away_still_finds_its_coordinator(
    remote: HttpCoordinator, bucket: SwitchedBucket, peer: Peer, tmp_path: Path
) -> None:
    store(bucket, peer.url)
    remote.view()
    bucket.is_away = True
    credentials = Credentials(run_id=RUN, secret=SECRET, token="t0ken")
    again = HttpCoordinator(tmp_path / "own" / "coordinator.json", credentials, timeout_s=0.5, objects=bucket)
    assert again.view() == VIEW
    again.close()


def test_a_pointer_that_another_hand_put_into_the_store_is_neither_followed_nor_kept(
    remote: HttpCoordinator, bucket: SwitchedBucket, peer: Peer, tmp_path: Path
) -> None:
    store(bucket, peer.url, secret="guess")
    with pytest.raises(EngineError, match="not signed"):
        remote.view()
    assert peer.asked == [] and not (tmp_path / "own" / "coordinator.json").exists()
