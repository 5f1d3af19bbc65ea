"""Meeting: where the trainer's ranks find each other. Rank 0 listens as long as it lives, on the gang's network only.

What is written there are addresses of ranks and who is ready; no secret, and nothing that is unpickled.
"""

import socket
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

_REACH = timedelta(seconds=60)
"""Rank 0 listens before it says where, so whoever is told finds it at once."""


class Meeting:
    """One rank's line to rank 0's store."""

    def __init__(self, host: str) -> None:
        """Neither listen nor reach anybody yet: one rank alone needs no meeting. Rank 0 would listen on `host`."""
        self._host = host
        self.address = ""
        """`host:port` of rank 0."""
        self._store: TCPStore | None = None

    def listen(self) -> str:
        """Be rank 0; return `host:port`. May be repeated."""
        if self._store is None:
            listener = socket.create_server((self._host, 0))
            port = listener.getsockname()[1]
            self._store = TCPStore(
                self._host,
                port,
                is_master=True,
                wait_for_workers=False,
                timeout=_REACH,
                master_listen_fd=listener.detach(),
            )
            self.address = f"{self._host}:{port}"
        return self.address

    def reach(self, address: str) -> None:
        """Be another rank. Raises torch's error when rank 0 is not there."""
        host, _, port = address.rpartition(":")
        self._store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_REACH)
        self.address = address

    def store(self, name: str) -> Store | None:
        """Return the part of the store for one group; None where there is no meeting."""
        return PrefixStore(name, self._store) if self._store is not None else None

    def be_ready(self, generation: int, rank: int) -> None:
        """Say that this rank waits to join a world."""
        assert self._store is not None
        self._store.set(_key(generation, rank), "")

    def are_ready(self, generation: int, ranks: range) -> bool:
        """Do these ranks wait to join?"""
        return not ranks or (self._store is not None and self._store.check([_key(generation, rank) for rank in ranks]))


def _key(generation: int, rank: int) -> str:
    return f"ready/{generation}/{rank}"
