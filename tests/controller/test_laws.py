"""What must never happen, over random histories of prices, capacity, losses, faults and crashes of the controller."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hexcloud.controller.reconcile import ENDED, Controller
from hexcloud.domain.errors import (
    BudgetError,
    CapacityError,
    EngineError,
    MarketError,
    NotYetError,
    PlanError,
    RateLimitError,
    StoreError,
    UnknownProvisionError,
)
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.ledger import CostKind
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.cloud import Habits, Loss, LossKind
from hexcloud.simulator.faults import Crash, Fault
from hexcloud.simulator.prices import spot_walk
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market
from tests.controller.wide import TARGET, wide_market, wide_workload

ControllerOf = Callable[[Simulation], Controller]
POLL_S = 10.0
LEASE_AND_BOOT_S = 300.0 + 120.0 + 20.0
ENDING = {NodeStatus.LOST, NodeStatus.STOPPING, NodeStatus.GONE, NodeStatus.DRAINING}
OFFERS = [offer.id for offer in small_market().offers]
FAULTS: dict[str, list[Exception]] = {
    "launch": [CapacityError("sold out"), RateLimitError("slow down"), UnknownProvisionError("?"), NotYetError("wait")],
    "terminate": [RateLimitError("slow down"), NotYetError("starting"), UnknownProvisionError("?")],
    "list": [RateLimitError("slow down"), UnknownProvisionError("?")],
    "coordinator": [EngineError("no answer")],
    "market": [MarketError("down")],
    "store": [StoreError("locked")],
}


@dataclass(frozen=True)
class History:
    script: Script
    budget_usd: float | None
    downtime_s: float
    """How long the controller stays dead after a crash."""
    stop_after: int
    """The user stops the run at this turn."""
    is_wide: bool
    """Does a replica take two machines?"""


@st.composite
def histories(draw: st.DrawFn, budget: bool = False) -> History:
    rng = random.Random(draw(st.integers(0, 2**32)))
    operations = draw(st.lists(st.sampled_from(sorted(FAULTS)), max_size=8))
    faults = [
        Fault(
            nth=draw(st.integers(0, 800 if operation == "store" else 40)),
            error=draw(st.sampled_from(FAULTS[operation])),
            operation=operation,
            after=operation != "launch" and draw(st.booleans()),
        )
        for operation in operations
    ]
    crashes = draw(st.lists(st.integers(0, 1500), max_size=4))
    faults += [Fault(nth=nth, error=Crash(), after=draw(st.booleans())) for nth in crashes]
    moments = st.floats(0, 2000)
    losses = st.builds(Loss, at_s=moments, kind=st.sampled_from(LossKind), nth=st.integers(0, 3))
    shortages = st.builds(CapacityStep, offer_id=st.sampled_from(OFFERS), at_s=moments, machines=st.integers(0, 1))
    return History(
        script=Script(
            prices=tuple(spot_walk(small_market(), rng, 0.0, hours=0.6, every_s=607)),
            capacity=tuple(draw(st.lists(shortages, max_size=3))),
            losses=tuple(draw(st.lists(losses, max_size=4))),
            faults=tuple(faults),
            habits=Habits(
                visible_after_s=draw(st.sampled_from([1.0, 12.0])),
                provision_s=draw(st.sampled_from([0.0, 45.0])),
                setup_s=draw(st.sampled_from([0.0, 35.0])),
                boot_s=40.0,
            ),
        ),
        budget_usd=draw(st.floats(8, 30)) if budget else None,
        downtime_s=draw(st.sampled_from([0.0, 30.0, 200.0, 2000.0])),
        stop_after=draw(st.integers(20, 200)),
        is_wide=draw(st.booleans()),
    )


def simulate(history: History) -> Simulation:
    if history.is_wide:
        policy = TARGET.model_copy(update={"budget_usd": history.budget_usd})
        return Simulation(policy, history.script, listed=wide_market(), workload=wide_workload())
    return Simulation(Policy(target_samples_per_s=20.0, budget_usd=history.budget_usd), history.script)


def obey_the_laws(sim: Simulation, budget_usd: float | None) -> None:
    records = {node.id: node for node in sim.store.node_records.values()}
    running = sim.cloud.running()
    assert all(machine.id in records for machine in running), "a machine that no record knows"
    slots = [machine.spec.slot for machine in running if records[machine.id].status not in ENDING]
    assert len(slots) == len(set(slots)), "two machines for one slot"
    if budget_usd is not None:
        assert sim.billed_usd() <= budget_usd + 1e-9, "spent over the budget"


def live_through(sim: Simulation, controller_of: ControllerOf, history: History) -> RunState:
    """Drive the run to its end, with a new controller after each crash; check the laws at every turn."""
    controller = controller_of(sim)
    for turn in range(history.stop_after + 200):
        try:
            if turn == history.stop_after:
                controller.stop("the user said so")
            state = controller.reconcile_once().state
        except Crash:
            sim.clock.sleep(history.downtime_s)
            controller = controller_of(sim)
            if turn >= history.stop_after:
                controller.stop("the user said so")
            state = RunState.RUNNING
        except (BudgetError, PlanError):
            return RunState.FAILED
        obey_the_laws(sim, history.budget_usd)
        if state in ENDED:
            return state
        sim.clock.sleep(POLL_S)
    raise AssertionError("the run did not end")


@given(histories(budget=True))
@settings(max_examples=25, deadline=None)
def test_the_bill_stays_under_the_budget_whatever_happens(controller_of: ControllerOf, history: History) -> None:
    sim = simulate(history)
    live_through(sim, controller_of, history)
    sim.clock.sleep(10 * LEASE_AND_BOOT_S)
    obey_the_laws(sim, history.budget_usd)


@given(histories())
@settings(max_examples=25, deadline=None)
def test_no_machine_is_left_when_the_run_has_ended(controller_of: ControllerOf, history: History) -> None:
    sim = simulate(history)
    live_through(sim, controller_of, history)
    sim.cloud.advance()
    assert not sim.cloud.running()
    assert all(node.status is NodeStatus.GONE for node in sim.store.node_records.values())


@given(histories(budget=True), st.integers(0, 200))
@settings(max_examples=20, deadline=None)
def test_a_fleet_whose_controller_died_ends_itself_under_the_budget(
    controller_of: ControllerOf, history: History, turns: int
) -> None:
    sim = simulate(history)
    controller = controller_of(sim)
    for _ in range(turns):
        try:
            controller.reconcile_once()
        except (Crash, BudgetError, PlanError):
            break
        sim.clock.sleep(POLL_S)
    sim.clock.sleep(LEASE_AND_BOOT_S)
    obey_the_laws(sim, history.budget_usd)
    assert not sim.cloud.running()


@given(histories())
@settings(max_examples=20, deadline=None)
def test_the_ledger_never_understates_the_rent(controller_of: ControllerOf, history: History) -> None:
    sim = simulate(history)
    live_through(sim, controller_of, history)
    rent = sum(entry.usd for _, entry in sim.store.entries if entry.kind is CostKind.COMPUTE)
    assert rent >= sim.billed_usd() - 1e-9


@given(histories())
@settings(max_examples=10, deadline=None)
def test_when_faults_stop_the_fleet_reaches_the_placement_and_stays(
    controller_of: ControllerOf, history: History
) -> None:
    sim = simulate(history)
    controller = controller_of(sim)
    for _ in range(500):
        try:
            controller.reconcile_once()
        except Crash:
            controller = controller_of(sim)
        sim.clock.sleep(POLL_S)
    assume(not any("the trainer was lost" in event.text for _, event in sim.store.history))  # that ends a run, rightly
    accepted = sim.store.plans.get(sim.run.id)
    assert accepted is not None
    nodes = [node for node in sim.store.node_records.values() if node.status is not NodeStatus.GONE]
    assert {node.slot for node in nodes} == {slot.name for slot in accepted[1].slots}
    assert all(node.status is NodeStatus.READY for node in nodes)
    before = everything(sim)
    assert controller.reconcile_once().changed == ()
    assert everything(sim) == before


def everything(sim: Simulation) -> tuple[object, ...]:
    store, calls = sim.store, sim.faults.calls
    return dict(store.node_records), list(store.history), calls["launch"], calls["terminate"]
