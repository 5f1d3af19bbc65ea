"""LedgerEntry: one line of what was spent, at the price in force when it was used."""

from enum import StrEnum

from pydantic import Field

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen


class CostKind(StrEnum):
    """What was billed."""

    COMPUTE = "compute"
    DISK = "disk"
    EGRESS = "egress"


class LedgerEntry(Frozen):
    """A span of one node at one price. Entries of a node and kind never overlap."""

    node_id: NodeId
    kind: CostKind
    from_s: float
    """Run clock, seconds since the epoch."""
    to_s: float
    usd_per_hour: float = Field(ge=0)
    usd: float = Field(ge=0)
