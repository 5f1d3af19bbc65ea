"""The room in which a verifier runs: `python -I -S sandbox_room.py SETTINGS`. Standard library only, Linux only.

With `"isolation": "full"` it has a network of its own without any way out, its own processes, and a file system that
holds the interpreter, read-only, and an empty folder in memory: no home, no /proc, nothing of ours. With `"limits"` it
has the limits only. In both all its processes together may hold `"memory"` bytes, and it ends, with everything it
started, when it is done or when the leash is let go: the other end of the pipe `"leash"` is held by who started us, so
a killed parent lets go too.

Needs root, or unprivileged user namespaces. Exit codes: the verifier's own, 128 + N for signal N, NO_ROOM.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TypedDict

NO_ROOM = 97
"""Exit code: there is no room of this kind on this machine; the reason is on stderr."""
WORK = "/verifier"
"""The only folder there, beside /tmp, that can be written; both in memory."""
_LOOK_MS, _AGAIN_S = 50, 0.005
"""How often memory is looked at, and how soon again before too much is believed."""
_FIRST_UID, _UIDS = 60_000, 5_000
"""Nobody's ids. One per room, or the process limit would count those of all rooms together."""
_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PROCESSES, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 2, 4, 4096, 16384, 1 << 18, 2
_SYS_MOUNT_SETATTR, _AT_RECURSIVE, _AT_FDCWD = 442, 0x8000, -100
_SYS_KCMP, _SAME_MEMORY = {"x86_64": 312, "aarch64": 272}, 1
_READ_ONLY_NO_SUID = 0x1 | 0x2
_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES, _SET_SUBREAPER = 1, 38, 36


class Settings(TypedDict):
    """What the room is made of."""

    isolation: str
    root: str
    """An empty folder."""
    readable: list[str]
    """Files and folders of the machine that are seen, outer ones first."""
    limits: dict[str, int]
    """Names of `resource` -> soft and hard limit, of each process."""
    memory: int
    """Bytes, of all processes together."""
    disk_mib: int
    leash: int
    """Descriptor of the reading end."""
    environment: dict[str, str]
    program: str
    """Source that the interpreter runs."""


_PAGE = resource.getpagesize()
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Build the room, run the verifier in it, leave nothing behind."""
    settings: Settings = json.loads(sys.argv[1])
    is_full = settings["isolation"] == "full"
    try:
        _write("/proc/self/oom_score_adj", "1000")  # short of memory, the kernel ends this first
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        uid = _enter(settings) if is_full else _own_uid(settings["root"])
    except OSError as error:
        return _no_room(f"{error.strerror}: {error.filename}")
    _check("prctl", _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0))
    child = os.fork()
    if child == 0:
        _die_with_parent()
        os.close(proc)
        os._exit(_be_first(settings, uid) if is_full else _run(settings, uid))
    _wait(child, settings["leash"], proc, settings["memory"])
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    code = _code(os.waitpid(child, 0)[1])
    if not is_full:  # else the kernel has ended them all
        _sweep()
    return code


def _enter(settings: Settings) -> int | None:
    """Give this process namespaces of its own and a bare file system; return the id to run as (None: stay)."""
    own = _NEW_MOUNTS | _NEW_NET | _NEW_PROCESSES | _NEW_IPC | _NEW_UTS
    uid: int | None = None
    if os.geteuid() == 0 and _libc.unshare(own) == 0:
        uid = _own_uid(settings["root"])
    else:
        outer_uid, outer_gid = os.geteuid(), os.getegid()
        _check("unshare", _libc.unshare(own | _NEW_USER))
        # Not 0 inside: the verifier's program then starts without any capability.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_FIRST_UID} {outer_uid} 1")
        _write("/proc/self/gid_map", f"{_FIRST_UID} {outer_gid} 1")
    _furnish(settings["root"], settings["readable"], settings["disk_mib"])
    return uid


def _own_uid(root: str) -> int | None:
    """Return an id of this room's own, and give it the folder; only root can. Nobody limits root's processes."""
    if os.geteuid() != 0:
        return None
    uid = _FIRST_UID + os.getpid() % _UIDS
    os.chown(root, uid, uid)
    return uid


def _furnish(root: str, readable: list[str], disk_mib: int) -> None:
    """Make `root` a small file system in memory with read-only views of what is readable, and move into it."""
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, f"size={disk_mib}m,mode=755")
    for path in readable:
        _show(path, root + path)
    for folder in ("/tmp", WORK):
        os.makedirs(root + folder, exist_ok=True)
        os.chmod(root + folder, 0o1777)
    os.chdir(root)
    _check("pivot_root", _libc.pivot_root(b".", b"."))
    _check("umount", _libc.umount2(b".", _DETACH))  # the machine's file system, now on top of ours
    os.chdir(WORK)


def _show(path: str, target: str) -> None:
    """Show a file or folder of the machine, read-only; a link is made anew, what is not there is left out."""
    if not os.path.lexists(path) or os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _BIND | _RECURSIVE)
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY_NO_SUID, 0, 0, 0)
    done = _libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, ctypes.sizeof(attributes)
    )
    _check(f"mount_setattr {path}", done)


def _be_first(settings: Settings, uid: int | None) -> int:
    """Be process 1 of the room: when it ends, the kernel ends all others."""
    child = os.fork()
    if child == 0:
        os._exit(_run(settings, uid))
    while True:
        ended, status = os.wait()
        if ended == child:
            return _code(status)


def _run(settings: Settings, uid: int | None) -> int:
    """Become the verifier's interpreter, with limits and without privileges. Returns only when that fails."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        if not os.access(sys.executable, os.R_OK | os.X_OK):
            return _no_room(f"only root may read {sys.executable}")
    _check("prctl", _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    for name, value in settings["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.execve(sys.executable, [sys.executable, "-I", "-c", settings["program"]], settings["environment"])


def _wait(child: int, leash: int, proc: int, memory: int) -> None:
    """Return when the child has ended, the leash was let go, or it and all below it hold too much memory."""
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(leash, select.POLLIN | select.POLLHUP)
    while not poll.poll(_LOOK_MS):
        if _holds_more(proc, child, memory):
            time.sleep(_AGAIN_S)
            if _holds_more(proc, child, memory):
                return


def _holds_more(proc: int, first: int, memory: int) -> bool:
    """Do a process and all below it hold more bytes? `proc` is the machine's /proc: the room may have none."""
    pids = _tree(proc, str(first))
    if sum(_resident(proc, pid) for pid in pids) <= memory:
        return False
    # What children share with their parent counts once only. That takes long to find out: they rest.
    _signal(pids, signal.SIGSTOP)
    pids = _with_own_memory(_tree(proc, str(first)))
    held = sum(_share(_read(proc, f"{pid}/smaps_rollup"), _resident(proc, pid)) for pid in pids)
    _signal(_tree(proc, str(first)), signal.SIGCONT)
    return held > memory


def _with_own_memory(pids: list[str]) -> list[str]:
    """Leave out who has all its memory in common with another one, as a child has that is about to run a program."""
    kcmp, owners = _SYS_KCMP.get(os.uname().machine), list[str]()
    for pid in pids:
        if kcmp is None or all(_libc.syscall(kcmp, int(pid), int(one), _SAME_MEMORY, 0, 0) != 0 for one in owners):
            owners.append(pid)
    return owners


def _signal(pids: list[str], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(int(pid), number)


def _resident(proc: int, pid: str) -> int:
    return int((_read(proc, f"{pid}/statm").split() or "00")[1]) * _PAGE


def _share(rollup: str, otherwise: int) -> int:
    """Return a process's bytes with its part of what it shares, where the kernel tells."""
    lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return next((int(words[1]) * 1024 for words in lines), otherwise)


def _tree(proc: int, first: str) -> list[str]:
    """Return a process and all below it, as far as they live."""
    pids = [first]
    for pid in pids:
        for thread in _names(proc, f"{pid}/task"):
            pids += _read(proc, f"{pid}/task/{thread}/children").split()
    return pids


def _names(proc: int, path: str) -> list[str]:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    except OSError:  # it has ended
        return []
    try:
        return os.listdir(folder)
    except OSError:
        return []
    finally:
        os.close(folder)


def _read(proc: int, path: str) -> str:
    """Return a file of /proc; nothing when its process has ended or may not be looked into."""
    try:
        with open(os.open(path, os.O_RDONLY, dir_fd=proc)) as file:
            return file.read()
    except OSError:
        return ""


def _sweep() -> None:
    """End what the verifier left behind: orphans below a subreaper become its own children."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            left = file.read().split()
        if not left:
            return
        _signal(left, signal.SIGKILL)
        for _ in left:
            with suppress(ChildProcessError):
                os.wait()


def _no_room(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return NO_ROOM


def _die_with_parent() -> None:
    _check("prctl", _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _check(f"mount {target}", _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def _check(what: str, result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


if __name__ == "__main__":
    sys.exit(main())
