"""Tether: ties a child's life to its parent's, then becomes the child. `python -m hexcloud.node.tether PID COMMAND...`

A node that is killed without notice can end nobody; on Linux the kernel does it (prctl, PR_SET_PDEATHSIG), and the
order survives the exec. Elsewhere a child has to watch its parent itself.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From Linux's <sys/prctl.h>."""


def tethered(command: list[str]) -> list[str]:
    """Return the command that runs `command` for as long as this process lives."""
    return [sys.executable, "-m", "hexcloud.node.tether", str(os.getpid()), *command]


def main(argv: list[str]) -> None:
    """Tie this process to its parent and become the command."""
    parent, command = int(argv[1]), argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the order was given
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv)
