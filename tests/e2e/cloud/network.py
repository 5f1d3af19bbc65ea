"""The bed's network: a namespace from which no packet finds a way out, and how a thread enters it."""

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE = "10.255.255.254"
"""Where the cloud's API listens: every node has an address in 10.0.0.0/8 on the same bridge."""
METADATA = "169.254.169.254"
CLONE_NEWNET = 0x40000000
FORKED_WITHIN_S = 10.0
FAR_AWAY = ("198.51.100.1", "2001:db8::1")
"""Addresses of documentation (RFC 5737, RFC 3849): a route to them would be a route to anywhere."""


def entering(pid: int, folder: str) -> list[str]:
    """Return the command prefix that runs a program in the namespaces of a process, in a folder."""
    return ["nsenter", "--target", str(pid), "--mount", "--net", "--pid", "--ipc", f"--wdns={folder}"]


def child(pid: int) -> int:
    """Return the one child of a process that may have begun just now."""
    until = time.monotonic() + FORKED_WITHIN_S
    while time.monotonic() < until:
        if children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return int(children[0])
        time.sleep(0.02)
    raise RuntimeError(f"process {pid} started no program")


def assert_sealed(pid: int) -> None:
    """Raise AssertionError where the network namespace of a process has any way out."""
    for family, address in zip(("-4", "-6"), FAR_AWAY, strict=True):
        prefix = ["nsenter", "--target", str(pid), "--net", "ip", family, "route"]
        default = subprocess.run([*prefix, "show", "default"], capture_output=True, text=True, check=True).stdout
        assert default == "", f"the bed has a default route: {default}"
        way = subprocess.run([*prefix, "get", address], capture_output=True, text=True, check=False)
        assert way.returncode != 0, f"the bed knows a way to {address}: {way.stdout}"


@contextmanager
def entered(pid: int) -> Iterator[None]:
    """Let this thread open its sockets in the network of a process, and start its children there."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _set_network(there)
        yield
    finally:
        _set_network(before)
        os.close(before)
        os.close(there)


def _set_network(namespace: int) -> None:
    # os.setns is there from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns: this thread cannot enter the network namespace")
