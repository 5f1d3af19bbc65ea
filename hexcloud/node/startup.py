"""How long a machine took to get here, as far as it knows itself: the planner learns from it what a move costs."""

import time
from functools import cache
from pathlib import Path

from hexcloud.domain.messages import Startup

SETUP_BEGAN, SETUP_ENDED = "setup-began", "setup-ended"
"""Files beside the node's directory in which the set-up script (deploy/sky) notes the time, seconds since the epoch."""
_BEGAN_S = time.monotonic()
"""When this module was read: the node program imports it first of all."""


@cache
def startup(directory: Path) -> Startup:
    """Return the parts of the start-up, as they were at the first call; 0 for a set-up that left no notes.

    A node that registers again, with another head or after a silence, has not started anew.
    """
    began_s, ended_s = (_moment(directory.parent / name) for name in (SETUP_BEGAN, SETUP_ENDED))
    setup_s = max(0.0, ended_s - began_s) if began_s and ended_s else 0.0
    return Startup(setup_s=setup_s, program_s=time.monotonic() - _BEGAN_S)


def _moment(path: Path) -> float:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return 0.0
