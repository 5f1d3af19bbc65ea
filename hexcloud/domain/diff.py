"""Diff: wanted against real. Verdict: is one change worth its disruption, with the reason."""

from enum import StrEnum

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.plan import Placement, Slot


class Diff(Frozen):
    """What must change so that the fleet fills a placement. Empty when nothing must."""

    launches: tuple[Slot, ...] = ()
    releases: tuple[NodeId, ...] = ()
    keeps: tuple[NodeId, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Is there nothing to do?"""
        return not self.launches and not self.releases


class MoveKind(StrEnum):
    """Why a change is proposed."""

    START = "start"
    """The run has no fleet yet."""
    REPAIR = "repair"
    """The fleet no longer meets the target or lost a machine."""
    SAVING = "saving"
    """The fleet works; another one is cheaper."""


class Verdict(Frozen):
    """The judge's word on one independent move. Money over the policy's horizon, USD."""

    kind: MoveKind
    approved: bool
    launches: tuple[Slot, ...]
    releases: tuple[NodeId, ...]
    saving_usd: float
    disruption_usd: float
    reason: str


class Judgement(Frozen):
    """All verdicts of one re-plan, and the placement that follows from the approved ones."""

    verdicts: tuple[Verdict, ...]
    placement: Placement
