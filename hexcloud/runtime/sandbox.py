"""Sandbox: a verifier in a process of its own, without network, with limits. It may run what a model wrote.

Invariant: it holds nothing of ours (environment, files, open descriptors), and nothing that it started outlives it.
"""

import json
import math
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import Isolation
from hexcloud.runtime import sandbox_program, sandbox_room
from hexcloud.runtime.sandbox_room import NO_ROOM, WORK, Settings

START_S = 60.0
"""To start an interpreter and import what a verifier needs, on a machine that is busy."""
_END_S = 5.0
_MIB = 1 << 20
_MOST_BYTES = 64 * 1024
"""Of one answer; a longer one is a fault."""
_MOST_WORDS = 500
"""Characters of a fault."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom")
"""What an interpreter needs beside its own folders."""
_SIGNALS = {128 + 9: "killed (memory or CPU time)", 128 + 24: "CPU time", 128 + 25: "file size"}
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Limits:
    """What one verification may use. CPU time and file size are each process's."""

    wall_s: float = 10.0
    cpu_s: int | None = 10
    """None: not limited, for a process that verifies many responses; the wall time is."""
    memory_mib: int = 1024
    """Address space of each process, and what all together may hold."""
    file_mib: int = 16
    disk_mib: int = 64
    """All files together (isolation `full`)."""
    processes: int = 32
    """Threads count too."""

    def of_process(self) -> dict[str, int]:
        """Return them by the kernel's names."""
        limits = {
            "RLIMIT_AS": self.memory_mib * _MIB,
            "RLIMIT_FSIZE": self.file_mib * _MIB,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            "RLIMIT_CORE": 0,
        }
        return limits if self.cpu_s is None else limits | {"RLIMIT_CPU": self.cpu_s}


_MENDS = {
    Isolation.FULL: "Full isolation needs root or unprivileged user namespaces. Allow them, or say `isolation: limits` "
    "under `task:` if every verifier, and every response that it runs, may use the network and read what this user may "
    "read",
    Isolation.LIMITS: "Root can't be limited, so another user runs it: say `isolation: full` under `task:`, or use a "
    "Python that every user may read",
}


@dataclass(frozen=True)
class Verdict:
    """What a verification gave."""

    reward: float
    fault: str = ""
    """Why there is no reward; it counts as 0. Empty: there is one."""


class Sandbox:
    """One process with one verifier. After a fault that ended it, make another."""

    def __init__(self, source: str, limits: Limits, isolation: Isolation) -> None:
        """Start it. Raises ConfigError when the kernel grants no room without network, or the source is broken."""
        self._limits, self._isolation = limits, isolation
        self._root = tempfile.TemporaryDirectory(prefix="hexcloud-verifier-")
        leash, self._leash = os.pipe()
        home = WORK if isolation is Isolation.FULL else self._root.name
        settings: Settings = {
            "isolation": isolation,
            "root": self._root.name,
            "readable": _readable(),
            "limits": limits.of_process(),
            "memory": limits.memory_mib * _MIB,
            "disk_mib": limits.disk_mib,
            "leash": leash,
            "environment": {**_ENVIRONMENT, "HOME": home},
            "program": Path(sandbox_program.__file__).read_text(),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", sandbox_room.__file__, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd=self._root.name,
            pass_fds=(leash,),
            process_group=0,
        )
        os.close(leash)
        self._talk = _Talk(self._process)
        word = self._ask(source, START_S)
        if isinstance(word, str) or "fault" in word:
            self._refuse(word if isinstance(word, str) else str(word["fault"]))

    @property
    def is_alive(self) -> bool:
        """Can it be asked?"""
        return self._process.poll() is None and self._leash >= 0

    def verify(self, response: str, answer: str) -> Verdict:
        """Judge one response. It is closed when the verifier exceeded a limit or died."""
        word = self._ask([response, answer], self._limits.wall_s)
        if isinstance(word, str):
            self.close()
            return Verdict(0.0, word)
        try:
            return _verdict(word)
        except (OverflowError, RecursionError, ValueError) as error:  # a response may write the line in its place
            return Verdict(0.0, f"{type(error).__name__}: its verdict cannot be read")

    def close(self) -> None:
        """End it and everything it started."""
        if self._leash < 0:
            return
        os.close(self._leash)
        self._leash = -1
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._talk.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._root.cleanup()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, question: object, within_s: float) -> dict[str, object] | str:
        """Return the answer to one line, or in words why there is none."""
        try:
            line = self._talk.exchange(json.dumps(question).encode() + b"\n", within_s)
            word = json.loads(line)
        except TimeoutError:
            return f"no verdict within {within_s:g} s"
        except OverflowError:
            return f"an answer of over {_MOST_BYTES} bytes"
        except EOFError:
            return _ending(self._process)
        except (ValueError, RecursionError):
            return "an answer that is no JSON"
        return word if isinstance(word, dict) else "an answer that is no object"

    def _refuse(self, reason: str) -> NoReturn:
        self.close()
        if self._process.returncode == NO_ROOM:
            raise ConfigError(f"a verifier can't be kept apart here: {reason}. {_MENDS[self._isolation]}")
        raise ConfigError(f"the verifier cannot be used: {reason}")


class _Talk:
    """Lines to and from a process, each within a time: neither a full pipe nor a silent process blocks us."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None  # opened as pipes
        self._stdin, self._stdout = process.stdin, process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._rest = b""

    def exchange(self, line: bytes, within_s: float) -> bytes:
        """Send a line, return the next one. Raises TimeoutError, EOFError, OverflowError."""
        ends_at_s = time.monotonic() + within_s
        while b"\n" not in self._rest:
            if len(self._rest) > _MOST_BYTES:
                raise OverflowError
            left_s = max(0.0, ends_at_s - time.monotonic())
            readable, writable, _ = select.select([self._stdout], [self._stdin] if line else [], [], left_s)
            if not readable and not writable:
                raise TimeoutError
            if writable:
                line = line[self._send(line) :]
            if readable:
                self._rest += self._receive()
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer

    def close(self) -> None:
        """Let go of both ends."""
        self._stdin.close()
        self._stdout.close()

    def _send(self, line: bytes) -> int:
        try:
            return os.write(self._stdin.fileno(), line)
        except BrokenPipeError:
            return len(line)  # it has ended: reading says so

    def _receive(self) -> bytes:
        got = os.read(self._stdout.fileno(), _MOST_BYTES)
        if not got:
            raise EOFError
        return got


def _verdict(word: dict[str, object]) -> Verdict:
    """Read an answer. Raises OverflowError, RecursionError or ValueError for one that only JSON can hold."""
    if "fault" in word:
        return Verdict(0.0, _printable(str(word["fault"])) or "a fault without a word")
    reward = word.get("reward")
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        return Verdict(0.0, _printable(f"reward {reward!r} is no finite number: it must be a float"))
    return Verdict(float(reward))


def _printable(words: str) -> str:
    """Return words that a log can hold."""
    return words[:_MOST_WORDS].encode(errors="replace").decode()


def _ending(process: "subprocess.Popen[bytes]") -> str:
    """Say how a process ended that answers no more."""
    try:
        code = process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return "it closed its line"
    assert process.stderr is not None  # opened as a pipe
    if code == NO_ROOM:
        return process.stderr.read().decode(errors="replace").strip() or f"ended with code {code}"
    return _SIGNALS.get(code, f"ended with code {code}")


def _readable() -> list[str]:
    """Return the interpreter's own folders, outer ones first."""
    return sorted({*_SYSTEM, sys.prefix, sys.base_prefix})
