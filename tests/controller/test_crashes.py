"""The controller is killed at every single call it makes, before and after the call's effect, and restarted."""

from collections.abc import Callable

import pytest

from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.policy import Policy
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.faults import Crash, Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
POLL_S = 10.0
TURNS = 45
LOSSES = (Loss(180.0, LossKind.PREEMPT, nth=0), Loss(200.0, LossKind.PREEMPT, nth=2))


def live(sim: Simulation, controller_of: ControllerOf, turns: int = TURNS) -> None:
    """Launch, lose a rollout node and the trainer, repair; then stop and end."""
    controller = controller_of(sim)
    for turn in range(turns):
        try:
            if turn == turns - 10:
                controller.stop("the user said so")
            controller.reconcile_once()
        except Crash:
            controller = controller_of(sim)
            if turn >= turns - 10:
                controller.stop("the user said so")
        sim.clock.sleep(POLL_S)


def calls_of(controller_of: ControllerOf) -> int:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=LOSSES))
    live(sim, controller_of)
    return sim.faults.calls[""]


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_no_machine_is_lost_or_doubled_wherever_the_controller_dies(
    controller_of: ControllerOf, after: bool, stride: int
) -> None:
    calls = calls_of(controller_of)
    assert calls > 300
    for nth in range(0, calls, stride):
        sim = Simulation(
            Policy(target_samples_per_s=20.0),
            Script(losses=LOSSES, faults=(Fault(nth=nth, error=Crash(), after=after),)),
        )
        live(sim, controller_of)
        records = {node.id: node for node in sim.store.nodes(sim.run.id)}
        assert set(sim.cloud.machines) <= set(records), f"call {nth}: a machine that no record knows"
        assert not sim.cloud.running(), f"call {nth}: a machine is left"
        assert all(node.status is NodeStatus.GONE for node in records.values()), f"call {nth}"
        assert len(sim.cloud.machines) == 5, f"call {nth}: {sorted(sim.cloud.machines)}"
