"""Report: what a run did, printed at its end and by `hexcloud report RUN --json`."""

from hexcloud.domain.frozen import Frozen


class BaselineRow(Frozen):
    """The same model with variables removed: what a simpler buyer would pay; None where it cannot."""

    name: str
    usd_per_hour: float | None
    reason: str = ""


class ReplanRow(Frozen):
    """One re-plan."""

    time_h: float
    """Run-clock hours since the start."""
    trigger: str
    verdict: str
    """`moved` or `stayed`."""
    reason: str
    usd_per_hour_before: float
    usd_per_hour_after: float


class LossRow(Frozen):
    """One node that was lost, and what it did to the trainer."""

    node: str
    time_h: float
    cause: str
    trainer_waited_s: float
    """Wall seconds the trainer waited for data in the 30 s after the loss."""


class WasteRow(Frozen):
    """Machines that were paid for and never worked: a gang counts as one when any of its members never came up."""

    nodes: tuple[str, ...]
    offer_id: str
    cause: str
    """Why the first of them ended that never came up."""
    usd: float
    """Their whole bill."""


class FleetChangeRow(Frozen):
    """One change of the rollout fleet and the trainer's idle time after it; the median is over all 30 s windows."""

    kind: str
    """`added`, `removed` or `lost`."""
    node: str
    time_h: float
    idle_30s_after: float
    median_idle_30s: float


class Report(Frozen):
    """All figures are measured, none is the planner's forecast (but for target and baselines)."""

    run: str
    state: str
    steps: int
    eta: int
    max_staleness: int
    mean_staleness: float
    staleness_histogram: dict[int, int]
    dropped_samples: int
    accuracy_before: float | None
    accuracy_after: float | None
    reward_first_fifth: float
    reward_last_fifth: float
    target_tokens_per_s: float | None
    achieved_tokens_per_s: float
    """Trained samples over wall time times the one scale."""
    clock_scale: float
    overlap_share: float
    spent_usd: float
    spent_by_kind: dict[str, float]
    waste: tuple[WasteRow, ...] = ()
    """What was paid for machines that never worked; part of `spent_usd`."""
    nodes_left: int
    replans: tuple[ReplanRow, ...]
    moves: int
    """Re-plans that changed the fleet for money: neither the start nor the repair of a loss."""
    losses: tuple[LossRow, ...]
    fleet_changes: tuple[FleetChangeRow, ...]
    baselines: tuple[BaselineRow, ...]
    """What simpler buyers would have paid when the run began: rent, egress, spread start-up and expected losses."""
    first_usd_per_hour: float | None = None
    """The run's first plan in the same terms."""
    usd_per_hour: float
    """Rent of the last plan."""
    output: str
