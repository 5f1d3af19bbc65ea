"""Commands: from a slot of the plan to what its machine must run. Secrets go into the environment and nowhere else."""

from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import EmulationPlan, Ports
from hexcloud.domain.command import CERTIFICATE_FILE, NODE_FILE, Command, Emulation, NodeSpec, run_store
from hexcloud.domain.fleet import Node
from hexcloud.domain.plan import ExecutionPlan, Placement, Role, Slot, WeightRoute
from hexcloud.domain.run import RunRecord
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.domain.world import GangPlan
from hexcloud.planner.distance import link_spec, scope_between

COORDINATOR_PORT = 8477
"""Where a rented head listens: the only port that is opened on it."""
REPLICA_PORT = 8478
"""Where the head of a replica listens for its other machines. It is opened to nobody else."""
METADATA_CLOUDS = frozenset({"aws", "gcp"})
"""Clouds whose machines can hear of their own end."""
ENGINE = "HEXCLOUD_ENGINE"
"""Variable by which a rented machine's set-up knows what to install; the node itself reads its specification."""
RUN_DIR, OUTPUT = "run", "output"
"""Folders of a rented machine's own, in the node's directory."""


def command_for(node: Node, slot: Slot, plan: ExecutionPlan, seen: Seen, ports: Ports) -> Command:
    """Return the command of one node in its slot."""
    secrets = {
        "HEXCLOUD_NODE_TOKEN": ports.secrets.node_token(node.id),
        "HEXCLOUD_RUN_SECRET": ports.secrets.run_secret,
        **ports.pass_env,
    }
    files = {NODE_FILE: node_spec(node, slot, plan, seen, ports).model_dump_json()}
    if slot.role is Role.TRAINER and slot.rank == 0:
        secrets["HEXCLOUD_CONTROLLER_TOKEN"] = ports.secrets.controller_token
        if ports.authority is not None:
            secrets["HEXCLOUD_TLS_KEY"] = ports.authority.private_key(node.id)
            files[CERTIFICATE_FILE] = ports.authority.certificate(node.id)
    return Command(
        image=None,
        argv=(ports.python, "-m", "hexcloud.node", slot.role.value),
        env={ENGINE: seen.run.spec.engine.value} if slot.role is Role.ROLLOUT else {},
        secrets=secrets,
        files=files,
    )


def node_spec(node: Node, slot: Slot, plan: ExecutionPlan, seen: Seen, ports: Ports) -> NodeSpec:
    """Return who the node is and what it does."""
    run, workload = seen.run, seen.run.workload
    spec = NodeSpec(
        run_id=run.id,
        node_id=node.id,
        slot=slot.name,
        role=slot.role,
        task=run.spec.task,
        weights=run.spec.weights,
        seed=run.spec.seed,
        slots=slot.rollout.slots if slot.rollout and not _is_member(slot) else 0,
        engine=run.spec.engine,
        tp=slot.rollout.tp if slot.rollout else 1,
        replicas=slot.rollout.replicas if slot.rollout else 1,
        samples_per_step=workload.samples_per_step,
        group_size=workload.group_size,
        eta=workload.eta,
        replace_zero_variance=run.spec.replace_zero_variance,
        steps=run.spec.steps,
        run_dir=run.run_dir,
        output=run.output,
        tokens_per_sample=workload.tokens_per_sample,
        spend_lease_s=ports.timing.spend_lease_s,
        training=_training(slot, run),
        gang=node.gang,
        rank=node.rank,
        head=node.head,
        ranks=run.spec.training.ranks or 1,
        region=_region(slot, seen),
        weights_stores=_weights_stores(slot, run),
        emulation=emulate(slot, plan, seen, ports.emulation) if ports.emulation else None,
    )
    if ports.authority is None:
        return spec
    return _with_gpus(_beyond_this_machine(spec, slot, run, ports), slot, seen)


def _weights_stores(slot: Slot, run: RunRecord) -> dict[str, str]:
    """Return the stores that a head fills."""
    if slot.role is not Role.TRAINER or slot.rank:
        return {}
    return {region: run_store(url, run.id) for region, url in run.spec.weights_stores.items()}


def _training(slot: Slot, run: RunRecord) -> TrainingSpec:
    """Return the trainer's settings: what the user leaves open is as planned, or as it suits emulated machines."""
    spec, planned = run.spec, slot.trainer and slot.trainer.layout
    told: dict[str, object] = {"precision": spec.precision, "activation_checkpointing": spec.recomputes_activations}
    if planned and spec.training.layout is None:
        told["layout"] = LayoutKind(planned.kind)
    if planned and spec.training.micro_batch_tokens is None and spec.is_real:
        told["micro_batch_tokens"] = planned.pass_tokens
    return spec.training.model_copy(update=told)


def planned_gang(placement: Placement, run: RunRecord) -> GangPlan | None:
    """Return what the trainer is to become: what is planned, or the user's word, is of this number of machines.

    None where the placement says nothing of it.
    """
    gang = placement.role(Role.TRAINER)
    told = _training(gang[0], run) if gang else None
    if told is None or told.layout is None:
        return None
    return GangPlan(machines=len(gang), layout=told.layout, pass_tokens=told.pass_tokens)


def _with_gpus(spec: NodeSpec, slot: Slot, seen: Seen) -> NodeSpec:
    """Return the specification with a rank for each GPU, unless the user says otherwise, and with what a GPU can."""
    offer = seen.market.offer(slot.offer_id)
    if offer is None or slot.role is not Role.TRAINER:
        return spec
    ranks = seen.run.spec.training.ranks or offer.gpu_count
    return spec.model_copy(update={"ranks": ranks, "rank_tflops": seen.market.gpus[offer.gpu].bf16_tflops})


def _region(slot: Slot, seen: Seen) -> str:
    """Return where a slot's machine is; empty where the market lists its offer no more."""
    offer = seen.market.offer(slot.offer_id)
    return f"{offer.cloud}/{offer.region}" if offer else ""


def _beyond_this_machine(spec: NodeSpec, slot: Slot, run: RunRecord, ports: Ports) -> NodeSpec:
    """Return the specification of a node that shares no folder with anybody: it meets the others in the run's store."""
    cloud = slot.offer_id.partition("/")[0]
    return spec.model_copy(
        update={
            "run_dir": RUN_DIR,
            "output": OUTPUT,
            "store": run_store(run.spec.store or "", run.id),
            "ca_pem": ports.authority.ca_pem if ports.authority else "",
            "coordinator_port": COORDINATOR_PORT,
            "replica_port": REPLICA_PORT if spec.head else 0,
            "notice": cloud if cloud in METADATA_CLOUDS else "",
            "private_env": tuple(sorted(ports.pass_env)),
        }
    )


def emulate(slot: Slot, plan: ExecutionPlan, seen: Seen, emulation: EmulationPlan) -> Emulation:
    """Return the caps that make a local process as fast, in fast motion, as the planned machine.

    A transfer that takes d run seconds shall take d / clock_scale wall seconds: the planned bandwidth shrinks with the
    weights (local bytes over planned bytes) and grows with the scale; the latency shrinks with the scale.
    """
    column = slot.rollout or slot.trainer
    route = next((route for route in plan.routes if route.target == slot.name), None)
    shrink = emulation.local_weight_bytes / seen.run.workload.version_bytes
    return Emulation(
        clock_scale=emulation.clock_scale,
        samples_per_s=(column.samples_per_s if column and not _is_member(slot) else 0.0) * emulation.clock_scale,
        link_bytes_per_s=route.gb_per_s * 1e9 * shrink * emulation.clock_scale if route else None,
        link_latency_ms=_latency_ms(route, plan, seen) / emulation.clock_scale if route else 0.0,
    )


def _is_member(slot: Slot) -> bool:
    """Does another machine serve what this one makes with it? A replica's head has the rate of all its machines."""
    return slot.role is Role.ROLLOUT and slot.rank > 0


def _latency_ms(route: WeightRoute, plan: ExecutionPlan, seen: Seen) -> float:
    """Return the latency that the catalog expects of a route; 0 where the market lists one of its ends no more."""
    offers = {slot.name: seen.market.offer(slot.offer_id) for slot in plan.placement.slots}
    source, target = offers[route.source], offers[route.target]
    link = link_spec(scope_between(source, target), seen.market.network) if source and target else None
    return link.latency_ms if link else 0.0
