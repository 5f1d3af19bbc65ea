"""Event: something that happened to a run, as a user reads it afterwards."""

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class Event(Frozen):
    """One line of the run's history."""

    at_s: float
    """Run clock, seconds since the epoch."""
    wall_s: float
    """Wall clock, seconds since the epoch."""
    kind: str
    """`node_requested`, `node_ready`, `node_lost`, `replan`, `price_shift`, `budget_stop`, ..."""
    node: str = ""
    text: str
    fields: dict[str, str | float | int | bool | None] = Field(default_factory=dict)
