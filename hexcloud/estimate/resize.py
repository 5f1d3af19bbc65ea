"""How long a trainer stands still while it changes its number of machines."""

from hexcloud.domain.formation import Formation
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.estimate.memory import STATE_BYTES_PER_PARAM
from hexcloud.estimate.transfer import transfer_s

MEETING_S = 5.0
"""For the groups of the change and of the new world to form; those who join start while the others train on. A guess
for NCCL: over gloo on one computer it is 0.3 s (tests/e2e/test_resized_gang.py)."""


def resize_s(model: ModelSpec, before: Formation, after: Formation, gb_per_s: float) -> float:
    """Return seconds from the last step of one size to the first of another, with `gb_per_s` between machines.

    Gradients, which are counted with the state, stay behind.
    """
    state_bytes = model.params * STATE_BYTES_PER_PARAM
    return MEETING_S + transfer_s(crossings(before, after) * state_bytes, gb_per_s)


def crossings(before: Formation, after: Formation) -> float:
    """Return at most how many times the whole state crosses the busiest machine's link, in one direction.

    Into a machine goes at most one state. Out of one goes more where every machine is to have a copy: its part of those
    who hold one, to each who lacks it (docs/adr/0013).
    """
    if after.kind is not LayoutKind.HSDP:
        return 1.0
    having = before.machines if before.kind is LayoutKind.HSDP else 1
    return max(1.0, (after.machines - having) / before.machines)
