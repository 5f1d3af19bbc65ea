"""Policy: the user's wishes, from `policies/*.yaml` with flags over it."""

from enum import StrEnum

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class Objective(StrEnum):
    """What the MILP optimises."""

    MIN_COST = "min_cost"
    MAX_THROUGHPUT = "max_throughput"
    BUDGET_RUN = "budget_run"
    """The samples that are left, in time and for the least money: the cheapest sample wins, whatever the hour costs."""


class ReplanSchedule(Frozen):
    """When to re-plan without any other reason; on the run clock. At most one of the two is set."""

    every: str | None = "10m"
    """An interval such as `90s`, `10m`, `2h`."""
    cron: str | None = None
    """A five-field crontab line, UTC; wins over `every`."""


class Policy(Frozen):
    """Objective, limits and temper. Money is USD, hours are hours of the run clock."""

    name: str = "cheapest"
    objective: Objective = Objective.MIN_COST
    target_samples_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_usd_per_hour: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Hourly cap on the plan's price."""
    budget_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cap on the whole run's spend, teardown included. For `budget_run`, as the planner sees it: what is left of it
    beside the reserve."""
    deadline_h: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For `budget_run`: hours in which the samples must be trained; what is left of them as time passes."""
    run_samples: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For `budget_run`: samples to train; set from the run's steps, and what is left of them as it goes on."""
    clouds: tuple[str, ...] = ()
    """Empty: all."""
    regions: tuple[str, ...] = ()
    """Empty: all. Entries may end in `*`."""
    gpus: tuple[str, ...] = ()
    """Empty: all."""
    max_spot_share: float = Field(default=1.0, ge=0, le=1)
    """Largest share of rollout throughput on spot."""
    spot_trainer: bool = False
    """May the trainer gang run on spot?"""
    survival_share: float = Field(default=0.5, ge=0, lt=1)
    """sigma: rollout throughput that must remain, as a share of T, when any one failure domain is lost."""
    max_nodes_per_pool: int = Field(default=8, gt=0)
    """Depth assumed of one pool (offer) when nobody knows more."""
    max_gang_nodes: int = Field(default=8, gt=0)
    """Largest trainer gang, nodes."""
    max_pools: int | None = Field(default=None, gt=0)
    """Largest number of different offers in a plan."""
    try_unproven: bool = False
    """Let a plan hold one machine of an offer whose capacity looks unproven."""
    max_price_age_h: float | None = Field(default=None, gt=0)
    """Older prices may keep running nodes but start no move. None: no limit."""
    max_live_price_age_h: float | None = Field(default=None, gt=0)
    """The same for prices that clouds themselves gave: a refresh renews them, the bundled snapshot stays as old as it
    is. None: no limit."""
    price_hysteresis: float = Field(default=0.10, ge=0)
    """Re-plan on price only when one moved by more than this share from its value at plan time."""
    switch_factor: float = Field(default=2.0, ge=0)
    """k: a move must save this many times its disruption cost."""
    min_dwell_s: float = Field(default=1800, ge=0)
    """A node is not moved for money sooner than this after it became ready."""
    horizon_h: float = Field(default=6.0, gt=0, allow_inf_nan=False)
    """Hours over which a saving counts and one-off costs are spread."""
    max_moves_at_once: int = Field(default=2, gt=0)
    """Disruption budget: nodes replaced for money at the same time."""
    replan: ReplanSchedule = ReplanSchedule()

    @property
    def least_samples_per_s(self) -> float | None:
        """Throughput that a plan must make: the target, or what the deadline asks for; None when nothing is asked."""
        if self.objective is Objective.BUDGET_RUN and self.deadline_h is not None and self.run_samples is not None:
            return self.run_samples / (self.deadline_h * 3600.0)
        return self.target_samples_per_s
