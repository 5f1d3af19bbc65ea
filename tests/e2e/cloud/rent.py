"""Rents as a controller does, and says on standard output what happened, a JSON object a line.

    python -m tests.e2e.cloud.rent FOLDER up|down RUN MACHINES ZONE KIND

KIND: `apart`, one rollout node or a trainer's gang; `replica`, rollout machines that make one replica.

It may be killed at any moment: what a second one needs is on disk or outside.
"""

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.provisioners.sky_api import SkyApi
from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.command import Command, NodeSpec
from hexcloud.domain.errors import NotYetError, ProvisionError
from hexcloud.domain.fleet import DEFAULT_DISK_GIB, Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import Offer, Tenure, offer_id
from hexcloud.domain.plan import Role, SlotName

SECRET = "a-token-that-nobody-may-read"
LARGE_DISK_GIB = 300
"""More than SkyPilot rents unasked."""
TURN_S = 2.0
PATIENCE_S = 800.0


def offer(zone: str) -> Offer:
    return Offer(
        id=offer_id("aws", "us-east-1", zone, "g5.xlarge", Tenure.SPOT),
        cloud="aws",
        region="us-east-1",
        zone=zone,
        instance_type="g5.xlarge",
        tenure=Tenure.SPOT,
        gpu="A10G",
        gpu_count=1,
        vcpus=4,
        memory_gib=16,
        network_gb_per_s=1.25,
        usd_per_hour=0.4,
        as_of=datetime.now(UTC),
        source="made up",
    )


def nodes(run: RunId, count: int, pool: Offer, kind: str) -> tuple[Node, ...]:
    is_replica = kind == "replica"
    role = Role.TRAINER if count > 1 and not is_replica else Role.ROLLOUT
    slots = [SlotName(f"{role.value}-{rank}") for rank in range(count)]
    return tuple(
        Node(
            id=node_id(run, slot, 1),
            run_id=run,
            slot=slot,
            attempt=1,
            role=role,
            offer_id=pool.id,
            status=NodeStatus.REQUESTED,
            requested_at_s=0.0,
            rank=rank,
            gang=count,
            head=slots[0] if is_replica else None,
            disk_gib=LARGE_DISK_GIB if is_replica else DEFAULT_DISK_GIB,
        )
        for rank, slot in enumerate(slots)
    )


def command(node: Node) -> Command:
    """Of the real node program, which waits for a run that never begins."""
    spec = NodeSpec(
        run_id=node.run_id,
        node_id=node.id,
        slot=node.slot,
        role=node.role,
        task="sort_digits",
        seed=0,
        slots=4,
        samples_per_step=8,
        group_size=4,
        eta=2,
        steps=5,
        run_dir="run",
        store=f"s3://hexcloud-store/rented/{node.run_id}",
        output="output",
        tokens_per_sample=100,
        spend_lease_s=900,
        gang=node.gang,
        rank=node.rank,
        head=node.head,
    )
    return Command(
        image=None,
        argv=("python", "-m", "hexcloud.node", node.role.value),
        env={},
        secrets={"HEXCLOUD_NODE_TOKEN": f"{SECRET}-{node.rank}", "HEXCLOUD_RUN_SECRET": SECRET},
        files={"node.json": spec.model_dump_json()},
    )


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def turn(provisioner: SkyPilotProvisioner, what: str, gang: tuple[Node, ...], pool: Offer) -> dict[str, object]:
    """Do one turn and return what it came to; nothing while it goes on."""
    began_s = time.monotonic()
    try:
        if what == "up":
            provisioner.launch(gang, pool, tuple(command(node) for node in gang))
        else:
            provisioner.terminate(gang[-1].id)
    except NotYetError as wait:
        say(phase=wait.phase, call_s=round(time.monotonic() - began_s, 2))
        return {}
    except ProvisionError as error:
        refusal: dict[str, object] = {"refused": type(error).__name__, "code": error.code, "said": str(error)}
        if what == "up":
            return refusal
        say(**refusal)  # an end is asked for until the cloud says that it came
        return {}
    return {"through": what}


def main(folder: str, what: str, run: str, count: str, zone: str, kind: str) -> None:
    pool, machines = offer(zone), AwsMachines()
    gang = nodes(RunId(run), int(count), pool, kind)
    provisioner = SkyPilotProvisioner(RunId(run), Path(folder), SkyApi(), {"aws": machines})
    came: dict[str, object] = {}
    until_s = time.monotonic() + PATIENCE_S
    while not came and time.monotonic() < until_s:
        came = turn(provisioner, what, gang, pool)
        time.sleep(0 if came else TURN_S)
    say(**came, listed=provisioner.list_nodes(RunId(run)))
    provisioner.close()
    machines.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
