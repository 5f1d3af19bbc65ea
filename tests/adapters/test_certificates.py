"""A real server on a real socket, and clients that trust one authority or another."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hexcloud.adapters.certificates import RunAuthority, server_context
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.trust import COORDINATOR_NAME, trusted_by

KEY, HEAD = b"k" * 32, NodeId("main-1.trainer-0.1")
MADE_AT_S = 1_790_000_000.0


@pytest.fixture
def authority() -> RunAuthority:
    return RunAuthority(KEY, MADE_AT_S)


@contextmanager
def served(authority: RunAuthority) -> Iterator[int]:
    """Answer `hello` to whoever completes a handshake; gives the port."""
    context = server_context(authority.certificate(HEAD), authority.private_key(HEAD))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as line:
                        line.sendall(b"hello")
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def ask(port: int, ca_pem: str, name: str = COORDINATOR_NAME) -> bytes:
    line = socket.create_connection(("127.0.0.1", port), timeout=5)
    with line, trusted_by(ca_pem).wrap_socket(line, server_hostname=name) as safe:
        return safe.recv(5)


def test_a_head_proves_the_coordinators_name_whatever_its_address(authority: RunAuthority) -> None:
    with served(authority) as port:
        assert ask(port, authority.ca_pem) == b"hello"


def test_a_restarted_controller_has_the_same_authority_to_the_byte(authority: RunAuthority) -> None:
    again = RunAuthority(KEY, MADE_AT_S)
    assert again.ca_pem == authority.ca_pem
    assert again.certificate(HEAD) == authority.certificate(HEAD)
    assert again.private_key(HEAD) == authority.private_key(HEAD)


@pytest.mark.parametrize("ca_pem", [RunAuthority(b"x" * 32, MADE_AT_S).ca_pem, ""], ids=["another run's", "none"])
def test_a_head_of_another_run_is_refused(authority: RunAuthority, ca_pem: str) -> None:
    with served(authority) as port, pytest.raises(ssl.SSLCertVerificationError):
        ask(port, ca_pem)


@pytest.mark.parametrize("name", ["example.com", "127.0.0.1"])
def test_no_other_name_is_proven(authority: RunAuthority, name: str) -> None:
    with served(authority) as port, pytest.raises(ssl.SSLCertVerificationError):
        ask(port, authority.ca_pem, name)


def test_a_head_cannot_sign_for_others(authority: RunAuthority) -> None:
    with served(authority) as port, pytest.raises(ssl.SSLCertVerificationError):
        ask(port, RunAuthority(KEY, MADE_AT_S).certificate(NodeId("main-1.trainer-0.2")))


def test_each_head_has_a_key_of_its_own(authority: RunAuthority) -> None:
    assert authority.private_key(HEAD) != authority.private_key(NodeId("main-1.trainer-0.2"))
    assert "\n" not in authority.private_key(HEAD)


@pytest.mark.parametrize("key", ["", "zz", "00" * 32])
def test_a_key_that_does_not_belong_to_the_certificate_is_refused_and_not_shown(
    authority: RunAuthority, key: str
) -> None:
    with pytest.raises(ConfigError, match="do not belong together") as caught:
        server_context(authority.certificate(HEAD), key)
    assert caught.value.__cause__ is None
