"""Columns, Allocation, Slot, Placement, ExecutionPlan: from what could be rented to what each machine does."""

from enum import StrEnum
from typing import NewType

from pydantic import Field, model_validator

from hexcloud.domain.formation import Formation
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Rejection
from hexcloud.domain.offer import OfferId
from hexcloud.domain.training import PASS_TOKENS, LayoutKind

SlotName = NewType("SlotName", str)
"""`rollout-3` or `trainer-0`. A name is never given twice in a run."""


class Role(StrEnum):
    """What a machine does."""

    ROLLOUT = "rollout"
    TRAINER = "trainer"


class RolloutColumn(Frozen):
    """One way to use one instance of an offer for rollout, or a few as one replica. Rates are of them together."""

    offer_id: OfferId
    tp: int
    """Tensor-parallel degree of a replica."""
    replicas: int
    """Replicas on the instance; 1 where it takes several."""
    batch: int
    """Running samples per replica."""
    samples_per_s: float
    generation_s: float
    """p95 time from grant to finished sample."""
    nodes: int = 1
    """Instances, of one zone, that come, work and go together: more than 1 where none holds the model alone."""
    spread_s: float = 0.0
    """From the moment at which the first of them has a version of the weights until all have it."""

    @property
    def slots(self) -> int:
        """Samples that run at once on the instances."""
        return self.replicas * self.batch


class Layout(Frozen):
    """How the trainer spreads over the ranks of a gang."""

    kind: str = "fsdp"
    """A `LayoutKind`, or what only a benchmark plans."""
    ranks: int
    pass_tokens: int = PASS_TOKENS
    """Most tokens of a forward pass of a rank."""

    @model_validator(mode="before")
    @classmethod
    def _of_older_versions(cls, body: object) -> object:
        """Read a stored plan that still has sequences of a pass, which no trainer went by."""
        return {name: body[name] for name in body if name != "micro_batch"} if isinstance(body, dict) else body


class TrainerColumn(Frozen):
    """One gang: n instances of one offer in one zone in a layout the trainer can run. Rates are of the whole gang."""

    offer_id: OfferId
    nodes: int
    layout: Layout
    samples_per_s: float
    step_s: float
    """Seconds per published training batch at that rate."""

    @property
    def formation(self) -> Formation:
        """How its ranks stand."""
        return Formation(LayoutKind(self.layout.kind), self.nodes, self.layout.ranks // self.nodes)


class Columns(Frozen):
    """What the MILP chooses from, sorted by offer id."""

    rollout: tuple[RolloutColumn, ...]
    trainer: tuple[TrainerColumn, ...]


class RolloutShare(Frozen):
    """`count` times the instances of `column`."""

    column: RolloutColumn
    count: int = Field(gt=0)
    usd_per_hour: float
    """Price of all of them."""

    @property
    def machines(self) -> int:
        """Instances in all."""
        return self.count * self.column.nodes


class TrainerShare(Frozen):
    """The chosen gang."""

    column: TrainerColumn
    usd_per_hour: float
    """Price of the whole gang."""


class Proof(Frozen):
    """What the solver proved."""

    lower_bound_usd_per_hour: float | None
    """No plan can be cheaper (min_cost). None for the others."""
    upper_bound_samples_per_s: float | None = None
    """No plan can be faster (max_throughput). None for the others."""
    lower_bound_usd_per_sample: float | None = None
    """No plan's samples can be cheaper (budget_run). None for the others."""
    gap: float
    """Relative distance between the answer and the bound."""
    binding: tuple[str, ...] = ()
    """Names of rows at their limit."""
    nodes: int = 0
    """Branch-and-bound nodes."""


class Allocation(Frozen):
    """The MILP's answer. `usd_per_hour` is rent, egress, one-off costs over the horizon, and expected loss."""

    rollout: tuple[RolloutShare, ...]
    trainer: TrainerShare
    samples_per_s: float
    """T: forecast throughput of trained samples."""
    rent_usd_per_hour: float
    egress_usd_per_hour: float
    one_off_usd_per_hour: float = 0.0
    risk_usd_per_hour: float = 0.0
    """Expected loss when a spot trainer gang is taken away."""
    proof: Proof

    @property
    def usd_per_hour(self) -> float:
        """The MILP's objective: all terms in USD/h."""
        return self.rent_usd_per_hour + self.egress_usd_per_hour + self.one_off_usd_per_hour + self.risk_usd_per_hour


class Slot(Frozen):
    """A named place for one machine. The trainer's slots form one gang, those of a replica another; rank 0 is its head.

    Of a replica each slot has the whole column.
    """

    name: SlotName
    role: Role
    offer_id: OfferId
    rank: int = 0
    head: SlotName | None = None
    """Slot of the head of a replica of several machines; None where there is one, and of trainers."""
    usd_per_hour: float = Field(gt=0)
    """Price at plan time: the baseline for the price trigger."""
    rollout: RolloutColumn | None = None
    trainer: TrainerColumn | None = None

    @property
    def unit(self) -> SlotName:
        """What comes and goes with it: the head of its replica, or itself."""
        return self.head or self.name

    @property
    def together(self) -> int:
        """Machines that are asked for in one call with it, itself included."""
        column = self.rollout or self.trainer
        return column.nodes if column else 1


class Placement(Frozen):
    """All slots of a plan, sorted by name."""

    slots: tuple[Slot, ...]

    @property
    def usd_per_hour(self) -> float:
        """Rent of all slots at plan-time prices."""
        return sum(slot.usd_per_hour for slot in self.slots)

    def role(self, role: Role) -> tuple[Slot, ...]:
        """Return the slots of one role."""
        return tuple(slot for slot in self.slots if slot.role is role)


class WeightRoute(Frozen):
    """How weights reach one rollout slot: straight from the trainer's head, or from a peer of the same region."""

    source: SlotName
    target: SlotName
    gb_per_s: float
    crosses_region: bool


class Forecast(Frozen):
    """What the plan promises; the report compares it with what was achieved."""

    samples_per_s: float
    tokens_per_s: float
    usd_per_hour: float
    step_s: float
    staleness: float
    """Expected versions between a sample's oldest token and its training step."""
    weight_sync_s: float
    """Seconds until the slowest rollout slot has a new version."""


class PlanResult(Frozen):
    """What `make_plan` gives: the plan, and every offer that is not in it with the reason."""

    plan: "ExecutionPlan"
    rejections: tuple[Rejection, ...]


class ExecutionPlan(Frozen):
    """Everything needed to start the run: slots, rank order, weight routes, forecast."""

    placement: Placement
    ranks: tuple[SlotName, ...]
    """Trainer slots in rank order."""
    routes: tuple[WeightRoute, ...]
    forecast: Forecast
    allocation: Allocation
