from collections.abc import Callable

import pytest

from hexcloud.controller.commands import command_for, node_spec
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.plan import ExecutionPlan, Role, Slot
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation


@pytest.fixture(scope="module")
def started(controller_of: Callable[[Simulation], Controller]) -> Simulation:
    sim = Simulation(Policy(target_samples_per_s=20.0), scale=25.0)
    controller_of(sim).reconcile_once()
    return sim


def plan_of(sim: Simulation) -> ExecutionPlan:
    accepted = sim.store.plan(sim.run.id)
    assert accepted is not None
    return accepted[0]


def test_secrets_travel_as_environment_only_and_only_the_head_has_the_controllers(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    plan, ports = plan_of(started), ports_of(started)
    slots = {slot.name: slot for slot in plan.placement.slots}
    for node in started.store.nodes(started.run.id):
        command = command_for(node, slots[node.slot], plan, started.run, ports)
        shown = " ".join((*command.argv, *command.files.values(), *command.env.values(), repr(command)))
        assert not any(secret in shown for secret in command.secrets.values())
        is_head = node.role is Role.TRAINER and slots[node.slot].rank == 0
        assert ("HEXCLOUD_CONTROLLER_TOKEN" in command.secrets) is is_head
        assert command.argv == ("python", "-m", "hexcloud.node", node.role.value)


def test_a_rollout_process_is_as_fast_as_its_column_in_fast_motion(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    plan, ports = plan_of(started), ports_of(started)
    slot = first(plan, Role.ROLLOUT)
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    spec = node_spec(node, slot, plan, started.run, ports)
    assert spec.emulation is not None
    assert slot.rollout is not None
    assert spec.emulation.samples_per_s == pytest.approx(25.0 * slot.rollout.samples_per_s)
    route = next(route for route in plan.routes if route.target == slot.name)
    transfer_run_s = started.run.workload.model.weight_bytes / (route.gb_per_s * 1e9)
    assert spec.emulation.link_bytes_per_s is not None
    local_bytes = started.run.workload.model.weight_bytes
    assert local_bytes / spec.emulation.link_bytes_per_s == pytest.approx(transfer_run_s / 25.0)


def first(plan: ExecutionPlan, role: Role) -> Slot:
    return plan.placement.role(role)[0]
