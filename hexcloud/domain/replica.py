"""What the head of a replica tells its other machines."""

from enum import StrEnum

from hexcloud.domain.frozen import Frozen


class OrderKind(StrEnum):
    """What a member is to do."""

    TAKE = "take"
    """Have these files in this folder."""
    START = "start"
    """Start its part of an engine; the one that runs ends first."""
    STAY = "stay"
    """Nothing: the head is there."""


class ReplicaFile(Frozen):
    """A file of a folder."""

    name: str
    size: int
    """Bytes."""


class ReplicaOrder(Frozen):
    """One order; members answer each before the next comes."""

    kind: OrderKind
    folder: str = ""
    """Of the weights: the same on every machine, as the engine loads new ones by one name everywhere."""
    files: tuple[ReplicaFile, ...] = ()
    version: int = -1
    seed: int = 0
    slots: int = 0
    """Requests that run at once."""
    rendezvous: str = ""
    """`host:port` where the engine's ranks meet."""


class ReplicaAnswer(Frozen):
    """A member's answer."""

    wants: tuple[str, ...] = ()
    """Files that it does not have: they follow, each with its hash."""
    trouble: str = ""
    """Why it cannot; empty: it is done."""
