"""The SkyPilot task of a launch: the template of the role, filled by what the plan has fixed. Pure but for the files.

Secrets go into SkyPilot's `secrets` and nowhere else: not into `envs`, labels, files or the text of a script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from hexcloud.adapters.files import load_gpu_names
from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.provisioners.naming import cluster_name, tags_of
from hexcloud.adapters.provisioners.node_dir import write_whole
from hexcloud.adapters.provisioners.sky_template import Task, filled_template
from hexcloud.domain.command import Command, NodeSpec
from hexcloud.domain.errors import UnknownProvisionError
from hexcloud.domain.fleet import DEFAULT_DISK_GIB, Node
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Role

AUTODOWN_MINUTES = 5
"""From the end of the node's program, which ends with its spend lease, to the end of the machine by itself."""
NODE_FILE = "node.json"
FAST_DISK = "high"
"""SkyPilot's word for it."""


@dataclass(frozen=True)
class Order:
    """What one launch rents: one machine or a gang, in rank order."""

    nodes: tuple[Node, ...]
    offer: Offer
    commands: tuple[Command, ...]

    @property
    def cluster(self) -> str:
        """The SkyPilot cluster: called after the head."""
        head = self.nodes[0]
        return cluster_name(head.run_id, head.slot, head.attempt)

    @property
    def role(self) -> Role:
        """All of them have the same."""
        return self.nodes[0].role


@dataclass(frozen=True)
class Folders:
    """What is copied onto every machine."""

    wheel: Path
    node: Path
    """With one folder per rank, see `write_files`."""


def sky_task(order: Order, zone: str | None, folders: Folders) -> Task:
    """Return the task. `zone` is the account's own name of the offer's zone; None where the cloud may choose.

    Raises ConfigError for a broken template, ValueError for a gang too large for tags.
    """
    offer, secrets = order.offer, _by_rank([command.secrets for command in order.commands])
    task = filled_template(
        order.role,
        {
            "cluster": order.cluster,
            "num_nodes": len(order.nodes),
            "infra": "/".join(part for part in (offer.cloud, offer.region, zone) if part),
            "instance_type": offer.instance_type.partition("+")[0],
            "use_spot": offer.tenure is Tenure.SPOT,
            "image_id": order.commands[0].image,
            **_disk(order),
            "labels": dict(tags_of(order.nodes, order.cluster)),
            "ports": _ports(order),
            "autodown_minutes": AUTODOWN_MINUTES,
            "wheel_folder": str(folders.wheel),
            "node_folder": str(folders.node),
            "secrets": dict(secrets.values),
        },
    )
    envs = _by_rank([command.env for command in order.commands])
    return task | {
        "resources": _entry(task, "resources") | _accelerators(offer),
        "envs": _entry(task, "envs") | dict(envs.values),
        "run": _choice((*secrets.ranked, *envs.ranked), len(order.nodes)) + str(task.get("run", "")),
    }


def write_files(folder: Path, commands: Sequence[Command]) -> None:
    """Write what each rank finds in its folder (`0`, `1`, ...). Raises UnknownProvisionError for a name with a path."""
    for rank, command in enumerate(commands):
        place = folder / str(rank)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, content in command.files.items():
            if Path(name).name != name:
                raise UnknownProvisionError(f"{name!r} is not a plain file name")
            write_whole(place / name, content)


@dataclass(frozen=True)
class _ByRank:
    values: Mapping[str, str]
    """Equal for all ranks under their own name; others once for each rank that has them, with the rank behind."""
    ranked: tuple[str, ...]
    """Names of the others."""


def _by_rank(given: Sequence[Mapping[str, str]]) -> _ByRank:
    names = sorted({name for one in given for name in one})
    ranked = tuple(name for name in names if len({one.get(name) for one in given}) > 1)
    values = {name: given[0][name] for name in names if name not in ranked}
    for rank, one in enumerate(given):
        values |= {f"{name}_{rank}": one[name] for name in ranked if name in one}
    return _ByRank(values, ranked)


def _choice(names: Sequence[str], machines: int) -> str:
    """Return shell lines that leave a rank with its own variables and none of the others'."""
    lines = [f'if {name}="$(printenv "{name}_$SKYPILOT_NODE_RANK")"; then export {name}; fi' for name in names]
    lines += [f"unset {' '.join(f'{name}_{rank}' for rank in range(machines))}" for name in names]
    return "".join(f"{line}\n" for line in lines)


def _ports(order: Order) -> JsonValue:
    """Only the head listens, on one port; None where nobody does."""
    text = order.commands[0].files.get(NODE_FILE)
    port = NodeSpec.model_validate_json(text).coordinator_port if text and order.role is Role.TRAINER else 0
    return [str(port)] if port else None


def _disk(order: Order) -> Task:
    """Return the size of the disks, and their speed: a larger one than SkyPilot's own is for large files.

    SkyPilot's own on EC2 writes 218 MB/s (gp3), less than a replica's head hands on; the next tier writes 437 MB/s.
    Google's grow faster with their size.
    """
    gib = order.nodes[0].disk_gib
    is_large = gib > DEFAULT_DISK_GIB
    return {
        "disk_gib": gib if is_large else None,
        "disk_tier": FAST_DISK if is_large and order.offer.cloud == "aws" else None,
    }


def _accelerators(offer: Offer) -> Task:
    """Google Cloud attaches GPUs to a host; elsewhere the machine type says it all."""
    if offer.cloud != "gcp":
        return {}
    name = GpuNames(load_gpu_names()).skypilot(offer.cloud, offer.instance_type, offer.gpu)
    return {"accelerators": {name: offer.gpu_count}}


def _entry(task: Task, name: str) -> Task:
    found = task.get(name) or {}
    return found if isinstance(found, dict) else {}
