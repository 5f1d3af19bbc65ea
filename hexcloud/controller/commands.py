"""Commands: from a slot of the plan to what its machine must run. Secrets go into the environment and nowhere else."""

from hexcloud.controller.outside import EmulationPlan, Ports
from hexcloud.domain.command import Command, Emulation, NodeSpec
from hexcloud.domain.fleet import Node
from hexcloud.domain.plan import ExecutionPlan, Role, Slot
from hexcloud.domain.run import RunRecord


def command_for(node: Node, slot: Slot, plan: ExecutionPlan, run: RunRecord, ports: Ports) -> Command:
    """Return the command of one node in its slot."""
    secrets = {
        "HEXCLOUD_NODE_TOKEN": ports.secrets.node_token(node.id),
        "HEXCLOUD_RUN_SECRET": ports.secrets.run_secret,
    }
    if slot.role is Role.TRAINER and slot.rank == 0:
        secrets["HEXCLOUD_CONTROLLER_TOKEN"] = ports.secrets.controller_token
    return Command(
        image=None,
        argv=(ports.python, "-m", "hexcloud.node", slot.role.value),
        env={},
        secrets=secrets,
        files={"node.json": node_spec(node, slot, plan, run, ports).model_dump_json()},
    )


def node_spec(node: Node, slot: Slot, plan: ExecutionPlan, run: RunRecord, ports: Ports) -> NodeSpec:
    """Return who the node is and what it does."""
    emulation, workload = ports.emulation, run.workload
    slots = slot.rollout.slots if slot.rollout else 0
    if emulation and emulation.max_slots is not None:
        slots = min(slots, emulation.max_slots)
    return NodeSpec(
        run_id=run.id,
        node_id=node.id,
        slot=slot.name,
        role=slot.role,
        task=run.spec.task,
        seed=run.spec.seed,
        slots=slots,
        samples_per_step=workload.samples_per_step,
        group_size=workload.group_size,
        eta=workload.eta,
        replace_zero_variance=run.spec.replace_zero_variance,
        steps=run.spec.steps,
        run_dir=run.run_dir,
        output=run.output,
        tokens_per_sample=workload.tokens_per_sample,
        spend_lease_s=ports.timing.spend_lease_s,
        emulation=emulate(slot, plan, run, emulation) if emulation else None,
    )


def emulate(slot: Slot, plan: ExecutionPlan, run: RunRecord, emulation: EmulationPlan) -> Emulation:
    """Return the caps that make a local process as fast, in fast motion, as the planned machine.

    A transfer that takes d run seconds shall take d / clock_scale wall seconds: the planned bandwidth shrinks with the
    weights (local bytes over planned bytes) and grows with the scale.
    """
    column = slot.rollout or slot.trainer
    route = next((route for route in plan.routes if route.target == slot.name), None)
    shrink = emulation.local_weight_bytes / run.workload.model.weight_bytes
    return Emulation(
        clock_scale=emulation.clock_scale,
        samples_per_s=(column.samples_per_s if column else 0.0) * emulation.clock_scale,
        link_bytes_per_s=route.gb_per_s * 1e9 * shrink * emulation.clock_scale if route else None,
    )
