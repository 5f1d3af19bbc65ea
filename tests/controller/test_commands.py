from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.commands import command_for, emulate, node_spec
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.plan import ExecutionPlan, Role, Slot
from hexcloud.domain.policy import Policy
from hexcloud.planner.distance import scope_between
from hexcloud.simulator.simulation import Simulation


@pytest.fixture(scope="module")
def started(controller_of: Callable[[Simulation], Controller]) -> Simulation:
    sim = Simulation(Policy(target_samples_per_s=20.0), scale=25.0)
    controller_of(sim).reconcile_once()
    return sim


def seen_of(sim: Simulation, ports_of: Callable[[Simulation], Ports]) -> Seen:
    return observe(sim.run, ports_of(sim), Memory())


def plan_of(seen: Seen) -> ExecutionPlan:
    assert seen.accepted is not None
    return seen.accepted[0]


def test_secrets_travel_as_environment_only_and_only_the_head_has_the_controllers(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    plan = plan_of(seen)
    slots = {slot.name: slot for slot in plan.placement.slots}
    for node in started.store.nodes(started.run.id):
        command = command_for(node, slots[node.slot], plan, seen, ports)
        shown = " ".join((*command.argv, *command.files.values(), *command.env.values(), repr(command)))
        assert not any(secret in shown for secret in command.secrets.values())
        is_head = node.role is Role.TRAINER and slots[node.slot].rank == 0
        assert ("HEXCLOUD_CONTROLLER_TOKEN" in command.secrets) is is_head
        assert command.argv == ("python", "-m", "hexcloud.node", node.role.value)


def test_a_rollout_process_is_as_fast_as_its_column_in_fast_motion(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    plan = plan_of(seen)
    slot = first(plan, Role.ROLLOUT)
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    spec = node_spec(node, slot, plan, seen, ports)
    assert spec.emulation is not None
    assert slot.rollout is not None
    assert spec.emulation.samples_per_s == pytest.approx(25.0 * slot.rollout.samples_per_s)
    route = next(route for route in plan.routes if route.target == slot.name)
    transfer_run_s = started.run.workload.model.weight_bytes / (route.gb_per_s * 1e9)
    assert spec.emulation.link_bytes_per_s is not None
    local_bytes = started.run.workload.model.weight_bytes
    assert local_bytes / spec.emulation.link_bytes_per_s == pytest.approx(transfer_run_s / 25.0)


def test_the_latency_of_a_route_passes_in_fast_motion(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    plan = plan_of(seen)
    listed_ms = {link.scope: link.latency_ms for link in seen.market.network.links}
    offers = {slot.name: seen.market.offer(slot.offer_id) for slot in plan.placement.slots}
    emulation = ports.emulation
    assert emulation is not None
    for route in plan.routes:
        slot = next(slot for slot in plan.placement.slots if slot.name == route.target)
        source, target = offers[route.source], offers[route.target]
        assert source is not None
        assert target is not None
        expected_ms = listed_ms[scope_between(source, target)] / 25.0
        assert emulate(slot, plan, seen, emulation).link_latency_ms == pytest.approx(expected_ms)
    gone = replace(seen, market=seen.market.model_copy(update={"offers": ()}))
    assert emulate(first(plan, Role.ROLLOUT), plan, gone, emulation).link_latency_ms == 0.0
    assert emulate(first(plan, Role.TRAINER), plan, seen, emulation).link_latency_ms == 0.0


def first(plan: ExecutionPlan, role: Role) -> Slot:
    return plan.placement.role(role)[0]
