from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.commands import COORDINATOR_PORT, command_for, emulate, node_spec, planned_gang
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import ExecutionPlan, Role, Slot
from hexcloud.domain.policy import Policy
from hexcloud.domain.training import PASS_TOKENS, LayoutKind
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
    transfer_run_s = started.run.workload.version_bytes / (route.gb_per_s * 1e9)
    assert spec.emulation.link_bytes_per_s is not None
    local_bytes = started.run.workload.version_bytes
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


class Authority:
    """Vouches for nobody: what it gives is only looked at."""

    ca_pem = "the run's authority"

    def certificate(self, node_id: NodeId) -> str:
        return f"certificate of {node_id}"

    def private_key(self, node_id: NodeId) -> str:
        return f"hush {node_id}"


def beyond(sim: Simulation, ports_of: Callable[[Simulation], Ports]) -> tuple[Seen, Ports]:
    seen, ports = seen_of(sim, ports_of), ports_of(sim)
    spec = seen.run.spec.model_copy(update={"store": "s3://runs/team"})
    keys = {"AWS_SECRET_ACCESS_KEY": "quiet", "AWS_ENDPOINT_URL": "http://10.0.0.1:5000"}
    seen = replace(seen, run=seen.run.model_copy(update={"spec": spec}))
    return seen, replace(ports, authority=Authority(), pass_env=keys, emulation=None)


@pytest.mark.parametrize("role", list(Role))
def test_machines_that_share_no_folder_meet_in_the_runs_store(
    started: Simulation, ports_of: Callable[[Simulation], Ports], role: Role
) -> None:
    seen, ports = beyond(started, ports_of)
    slot = first(plan_of(seen), role)
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    command = command_for(node, slot, plan_of(seen), seen, ports)
    spec = NodeSpec.model_validate_json(command.files["node.json"])
    assert spec.store == f"s3://runs/team/{seen.run.id}"
    assert (spec.run_dir, spec.output, spec.ca_pem) == ("run", "output", "the run's authority")
    assert spec.coordinator_port == COORDINATOR_PORT
    assert spec.notice in ("aws", "gcp", "")
    assert spec.notice in ("", slot.offer_id.partition("/")[0])
    assert spec.private_env == ("AWS_ENDPOINT_URL", "AWS_SECRET_ACCESS_KEY")
    assert spec.emulation is None
    offer = seen.market.offer(slot.offer_id)
    assert offer is not None
    if slot.role is Role.TRAINER:  # a rank for each GPU, and what it can
        assert (spec.ranks, spec.rank_tflops) == (offer.gpu_count, seen.market.gpus[offer.gpu].bf16_tflops)


def test_only_the_head_can_prove_that_it_is_and_no_secret_is_in_a_file(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = beyond(started, ports_of)
    plan = plan_of(seen)
    slots = {slot.name: slot for slot in plan.placement.slots}
    for node in started.store.nodes(started.run.id):
        command = command_for(node, slots[node.slot], plan, seen, ports)
        is_head = node.role is Role.TRAINER and slots[node.slot].rank == 0
        assert ("HEXCLOUD_TLS_KEY" in command.secrets) is is_head
        assert ("coordinator.pem" in command.files) is is_head
        assert command.secrets["AWS_SECRET_ACCESS_KEY"] == "quiet"
        shown = " ".join((*command.argv, *command.files.values(), *command.env.values(), repr(command)))
        assert not any(secret in shown for secret in command.secrets.values())


def test_only_a_head_is_told_the_stores_that_it_fills_each_with_the_runs_own_part(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    stores = {"aws/us-east-1": "s3://bucket/prefix/"}
    run = seen.run.model_copy(update={"spec": seen.run.spec.model_copy(update={"weights_stores": stores})})
    told = {}
    for node in started.store.nodes(run.id):
        slot = next((slot for slot in plan_of(seen).placement.slots if slot.name == node.slot), None)
        if slot is not None:
            told[slot.role] = node_spec(node, slot, plan_of(seen), replace(seen, run=run), ports).weights_stores
    assert told == {Role.TRAINER: {"aws/us-east-1": f"s3://bucket/prefix/{run.id}"}, Role.ROLLOUT: {}}


def test_on_this_machine_nothing_travels(started: Simulation, ports_of: Callable[[Simulation], Ports]) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    slot = first(plan_of(seen), Role.TRAINER)
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    spec = node_spec(node, slot, plan_of(seen), seen, ports)
    assert (spec.store, spec.ca_pem, spec.coordinator_port, spec.notice) == ("", "", 0, "")
    assert (spec.run_dir, spec.output) == (seen.run.run_dir, seen.run.output)


@pytest.mark.parametrize(("asked", "told"), [(None, LayoutKind.HSDP), (LayoutKind.TP, LayoutKind.TP)])
def test_the_trainer_is_told_the_planned_layout_unless_the_user_names_one(
    started: Simulation, ports_of: Callable[[Simulation], Ports], asked: LayoutKind | None, told: LayoutKind
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    plan = plan_of(seen)
    slot = first(plan, Role.TRAINER)
    assert slot.trainer is not None
    hybrid = slot.trainer.layout.model_copy(update={"kind": "hsdp"})
    slot = slot.model_copy(update={"trainer": slot.trainer.model_copy(update={"layout": hybrid})})
    settings = seen.run.spec.training.model_copy(update={"layout": asked})
    run = seen.run.model_copy(update={"spec": seen.run.spec.model_copy(update={"training": settings})})
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    training = node_spec(node, slot, plan, replace(seen, run=run), ports).training
    assert (training.layout, training.precision) == (told, run.spec.precision)


def test_a_rented_trainer_makes_the_planned_passes_unless_the_user_says_how_large(
    started: Simulation, ports_of: Callable[[Simulation], Ports]
) -> None:
    seen, ports = seen_of(started, ports_of), ports_of(started)
    plan = plan_of(seen)
    slot = first(plan, Role.TRAINER)
    node = next(node for node in started.store.nodes(started.run.id) if node.slot == slot.name)
    assert slot.trainer is not None

    def told(provider: str, **fields: object) -> tuple[int, bool | None, int | None]:
        settings = seen.run.spec.training.model_copy(update=fields)
        spec = seen.run.spec.model_copy(update={"training": settings, "provider": provider})
        run = seen.run.model_copy(update={"spec": spec})
        training = node_spec(node, slot, plan, replace(seen, run=run), ports).training
        gang = planned_gang(plan.placement, run)
        return training.pass_tokens, training.activation_checkpointing, gang.pass_tokens if gang else None

    planned = slot.trainer.layout.pass_tokens
    assert planned != PASS_TOKENS
    assert told("skypilot") == (planned, True, planned)
    asked = {"micro_batch_tokens": 512, "activation_checkpointing": False}
    assert told("skypilot", **asked) == (512, False, 512)
    assert told("local") == (PASS_TOKENS, False, PASS_TOKENS), "an emulated machine has another's memory"
    assert told("local", **asked) == (512, False, 512)
