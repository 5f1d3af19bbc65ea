"""A line between two machines of a replica, on which nobody waits for ever for one that has fallen silent.

Both ends prove the replica's key within a deadline. Then every read and write has one of its own, and the kernel asks
now and again whether the other machine is there: one that is gone without a word shows within `DEAD_S`.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from threading import Timer

HANDSHAKE_S = 10.0
"""For a call and its proof in all: the machines are in one zone."""
STALL_S = 60.0
"""For the next bytes of a message that has begun, or for room to write some: a disk may make the other end slow."""
_IDLE_S, _ASK_S, _ASKS = 10, 5, 4
DEAD_S = _IDLE_S + _ASK_S * _ASKS
MOST_WORD = 64
"""Bytes."""
BROKEN = (OSError, EOFError, AuthenticationError, ValueError)
"""What a line that is of no use any more raises."""


def call(address: tuple[str, int], key: bytes, word: bytes) -> Connection:
    """Return a line to who listens there and has the key, and begin with a word. Raises one of BROKEN.

    It takes at most twice HANDSHAKE_S.
    """
    line = _line(socket.create_connection(address, HANDSHAKE_S))
    with _closed_if_broken(line), within(line, HANDSHAKE_S):
        answer_challenge(line, key)
        deliver_challenge(line, key)
        line.send_bytes(word)
    return line


def answer(caller: socket.socket, key: bytes) -> tuple[Connection, bytes]:
    """Return the line of a caller who has the key, and its word, within HANDSHAKE_S. Raises one of BROKEN."""
    line = _line(caller)
    with _closed_if_broken(line), within(line, HANDSHAKE_S):
        deliver_challenge(line, key)
        answer_challenge(line, key)
        return line, line.recv_bytes(MOST_WORD)


@contextmanager
def within(line: Connection, seconds: float) -> Iterator[None]:
    """Cut the line off when the block takes longer: who reads or writes in it then meets the line's end."""
    with socket.socket(fileno=os.dup(line.fileno())) as twin:
        timer = Timer(seconds, partial(_cut, twin))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def cut(line: Connection) -> None:
    """End a line from another thread than the one that reads or writes there, which is woken by it."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.fileno())) as twin:
        _cut(twin)


def why(error: BaseException) -> str:
    """Return what broke a line, for people."""
    if isinstance(error, BlockingIOError):
        return f"nothing came or went for {STALL_S:.0f} s"
    return str(error) or type(error).__name__


def _line(own: socket.socket) -> Connection:
    own.setblocking(True)
    stall = struct.pack("ll", int(STALL_S), 0)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, stall)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stall)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASK_S)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _ASKS)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_S * 1000)
    return Connection(own.detach())


@contextmanager
def _closed_if_broken(line: Connection) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:  # of the standard library, for a caller that speaks of other things
        line.close()
        raise AuthenticationError("it knows no such line") from error
    except BaseException:
        line.close()
        raise


def _cut(own: socket.socket) -> None:
    with suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)
