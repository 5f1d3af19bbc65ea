"""How long a trainer stands still while it changes its number of machines."""

from hexcloud.domain.model import ModelSpec
from hexcloud.estimate.memory import STATE_BYTES_PER_PARAM
from hexcloud.estimate.transfer import transfer_s

MEETING_S = 5.0
"""For the groups of the change and of the new world to form; those who join start while the others train on. A guess
for NCCL: over gloo on one computer it is 0.3 s (tests/e2e/test_resized_gang.py)."""


def resize_s(model: ModelSpec, gb_per_s: float) -> float:
    """Return seconds from the last step of one size to the first of another, with `gb_per_s` between machines.

    At most the whole state crosses one link (docs/adr/0013); gradients, which are counted with it, stay behind.
    """
    return MEETING_S + transfer_s(model.params * STATE_BYTES_PER_PARAM, gb_per_s)
