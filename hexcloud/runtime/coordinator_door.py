"""Door: the socket on which the coordinator listens, and how others reach it. Beyond this machine it is TLS."""

import socket
import ssl
from dataclasses import dataclass

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.trust import is_loopback


@dataclass(frozen=True)
class Door:
    """Where the coordinator listens, how it is reached, and how it proves who it is."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    address: str = ""
    """Under which others reach this machine; empty: `host`."""
    tls: ssl.SSLContext | None = None
    """None is for this machine alone."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a door through which anybody on the way could read tokens."""
        if self.tls is None and not is_loopback(self.host):
            raise ConfigError(
                f"the coordinator listens on {self.host} only with a certificate; the node was given none"
            )

    def url(self, host: str, port: int) -> str:
        """Return a URL of this door."""
        return f"{'http' if self.tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"


HERE = Door()
"""For this machine alone."""


def listen(door: Door) -> socket.socket:
    """Bind. The protocol is named because asyncio sets TCP_NODELAY only then; else a call takes 40 ms."""
    family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A head that is started again on its machine must not wait until the kernel forgets the first one's calls.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((door.host, door.port))
    except OSError:
        listener.close()
        raise
    return listener


def local_host(host: str) -> str:
    """Return the address by which this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
