"""The processes of local nodes: a tag in their environment says whose they are, as a tag on a rented machine does.

A tag, unlike a pid, is never reused, and children inherit it even when they leave the node's process group. While a
process calls exec its environment reads as empty, so the node's first process is known by its record as well.
"""

import contextlib
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import psutil

from hexcloud.adapters.provisioners import launch
from hexcloud.adapters.provisioners.node_dir import NodeDir
from hexcloud.domain.command import Command

TAG = "HEXCLOUD_NODE_DIR"

_KEPT = (
    *("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "HF_HOME"),
    "HEXCLOUD_SGLANG_PYTHON",
)
"""All that a node inherits: a rented machine would not see this one's cloud keys and tokens either."""

_EXEC_TRIES = 20
_EXEC_POLL_S = 0.0005
"""An exec is over in microseconds, in milliseconds when the machine is busy."""
_KERNEL = 0
"""Process group of the kernel's threads, which have no environment ever."""
_BIRTH_ERROR_S = 2.0
"""Linux counts births from a boot time that it knows to the second."""
_KILL_S = 5.0
"""Wall seconds after which a process that SIGKILL did not end (stuck in the kernel) is left to the next turn."""
_KILL_POLL_S = 0.005


def spawn(node: NodeDir, command: Command) -> int:
    """Start a process that becomes the node unless another one has; return its pid. Raises OSError."""
    directory = str(node.path)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    environment = kept | command.env | command.secrets | {"PATH": path, TAG: directory}
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", launch.__file__, directory, *command.argv],
        environment,
        setsid=True,  # its own group to end it by, and no Ctrl-C from our terminal
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(node.log), log_flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def living(nodes: Iterable[NodeDir]) -> dict[Path, list[psutil.Process]]:
    """Return the live processes of these nodes, by the node's directory; a node without any is left out."""
    tagged = _tagged()
    found = {node.path: _united(_first(node), tagged[node.path]) for node in nodes}
    return {path: processes for path, processes in found.items() if processes}


def below(root: Path) -> set[Path]:
    """Return the directories right below a folder that live processes carry as their tag, also lost ones."""
    return {path for path in _tagged() if path.parent == root}


def _tagged() -> dict[Path, list[psutil.Process]]:
    tagged: dict[Path, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # of another user, or gone meanwhile
            tagged[Path(_tag(process))].append(process)
    return tagged


def _tag(process: psutil.Process) -> str:
    for _ in range(_EXEC_TRIES):
        environment = process.environ()
        if environment or process.status() == psutil.STATUS_ZOMBIE or os.getpgid(process.pid) == _KERNEL:
            return environment.get(TAG, "")
        time.sleep(_EXEC_POLL_S)
    return ""


def _first(node: NodeDir) -> list[psutil.Process]:
    pid = node.pid()
    if pid is None:
        return []
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        # Who has this pid now and was born after the record was written is somebody else.
        is_it = process.create_time() < node.claimed_wall_s() + _BIRTH_ERROR_S
        if is_it and process.status() != psutil.STATUS_ZOMBIE:
            return [process]
    return []


def _united(first: list[psutil.Process], tagged: list[psutil.Process]) -> list[psutil.Process]:
    return first + [process for process in tagged if process not in first]


def interrupt(node: NodeDir) -> None:
    """Send SIGTERM to the members of the node's own group; they tell their children."""
    group = node.pid()
    for process in living([node]).get(node.path, []):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group:
                process.send_signal(signal.SIGTERM)


def kill(node: NodeDir) -> None:
    """Kill every process of a node, also those that are born while this goes on. Gives up after some seconds."""
    give_up = time.monotonic() + _KILL_S
    while (processes := living([node]).get(node.path)) and time.monotonic() < give_up:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_KILL_POLL_S)


def reap(children: set[int]) -> set[int]:
    """Take the exit status of our own children that ended; return those that have not."""
    return {pid for pid in children if _is_running_child(pid)}


def _is_running_child(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:  # somebody else took its status
        return False
