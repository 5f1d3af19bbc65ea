"""Stay: one machine we asked a pool for, and how it ended: what our own fleet teaches about a pool."""

from enum import StrEnum

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.offer import OfferId


class End(StrEnum):
    """How a machine left us."""

    REFUSED = "refused"
    """It never came: the pool was sold out."""
    NEVER_READY = "never_ready"
    """It came and was gone or given up before its first heartbeat."""
    TAKEN = "taken"
    """It worked, and was lost without our asking."""
    RELEASED = "released"
    """We ended it."""


class Stay(Frozen):
    """One machine of one pool. Moments are run-clock seconds since the epoch."""

    offer_id: OfferId
    asked_at_s: float
    ready_at_s: float | None = None
    """First heartbeat; None: none came."""
    until_s: float
    """When it ended or, where it stands, when it was last watched."""
    end: End | None = None
    """None: it stood when it was last watched."""

    @property
    def worked_h(self) -> float:
        """Hours from its first heartbeat."""
        return 0.0 if self.ready_at_s is None else max(0.0, self.until_s - self.ready_at_s) / 3600.0
