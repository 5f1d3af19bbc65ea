"""Simulation: clock, market, cloud, store and run, put together; what a controller needs besides its own things."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hexcloud.domain.errors import EngineError
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunRecord
from hexcloud.domain.workload import Workload
from hexcloud.ports import Coordinator
from hexcloud.simulator.capacity import Capacity, CapacityStep
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.cloud import Habits, Loss, SimCloud
from hexcloud.simulator.coordinator import SimCoordinator
from hexcloud.simulator.faults import Fault, Faults, Outage
from hexcloud.simulator.prices import PriceStep, SimMarket
from hexcloud.simulator.provisioner import SimProvisioner
from hexcloud.simulator.store import SimStore
from hexcloud.simulator.world import small_market, small_run, small_workload


@dataclass(frozen=True)
class Script:
    """Everything that will happen to a simulation from outside. Moments are run-clock seconds after its start."""

    prices: tuple[PriceStep, ...] = ()
    capacity: tuple[CapacityStep, ...] = ()
    losses: tuple[Loss, ...] = ()
    faults: tuple[Fault, ...] = ()
    """By operation: `launch`, `terminate`, `list`, `coordinator`, `market`, `store`, or "" for any call of these."""
    outages: tuple[Outage, ...] = ()
    habits: Habits = field(default_factory=Habits)
    engines: Mapping[str, float] = field(default_factory=dict)
    """GPU -> samples per run second that a full rollout machine really makes; where absent, what the plan says."""


@dataclass
class Simulation:
    """One run on one simulated provider. `script.faults` strike from the first call on."""

    policy: Policy
    script: Script = Script()
    scale: float = 1.0
    steps: int = 10_000
    listed: Market = field(default_factory=small_market)
    workload: Workload = field(default_factory=small_workload)
    run: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(scale=self.scale)
        self.start_s = self.clock.now_s()
        self.faults = Faults(self.script.faults)
        self.market = SimMarket(self.listed, self._shifted_prices(), self.faults)
        self.cloud = SimCloud(
            clock=self.clock,
            market=self.market,
            capacity=Capacity(self._shifted_capacity()),
            losses=tuple(replace(loss, at_s=self.start_s + loss.at_s) for loss in self.script.losses),
            faults=self.faults,
            outages=tuple(
                replace(one, from_s=self.start_s + one.from_s, to_s=self.start_s + one.to_s)
                for one in self.script.outages
            ),
            habits=self.script.habits,
            engines=self.script.engines,
        )
        self.provisioner = SimProvisioner(self.cloud)
        self.store = SimStore(Faults())
        self.run = small_run(self.clock, self.policy, self.steps, self.workload)
        self.store.save_run(self.run)
        self.store.faults = self.faults

    def coordinator(self) -> Coordinator:
        """Find the coordinator, as by the run's pointer. Raises EngineError while no head is up."""
        self.cloud.advance()
        if self.cloud.head() is None:
            raise EngineError("no coordinator has written its address yet")
        return SimCoordinator(self.cloud, self.run)

    def billed_usd(self) -> float:
        """Return what the machines have truly cost until now."""
        self.cloud.advance()
        return self.cloud.billed_usd(self.run.id)

    def _shifted_prices(self) -> Iterable[PriceStep]:
        return (replace(step, at_s=self.start_s + step.at_s) for step in self.script.prices)

    def _shifted_capacity(self) -> Iterable[CapacityStep]:
        return (replace(step, at_s=self.start_s + step.at_s) for step in self.script.capacity)
