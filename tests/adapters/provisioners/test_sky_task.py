"""The task that SkyPilot gets: what the plan has fixed, and secrets in one place only."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.provisioners.sky_task import AUTODOWN_MINUTES, Folders, Order, sky_task, write_files
from hexcloud.adapters.provisioners.sky_template import Task
from hexcloud.domain.command import Command, NodeSpec
from hexcloud.domain.errors import UnknownProvisionError
from hexcloud.domain.fleet import Node, NodeStatus, node_id
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Role, SlotName
from tests.adapters.provisioners.renting import OFFER, RUN

FOLDERS = Folders(wheel=Path("/run/wheel"), node=Path("/run/node"))


def command(secrets: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Command:
    return Command(image=None, argv=("python",), env={}, secrets=secrets or {}, files=files or {})


def resources(task: Task) -> Task:
    found = task["resources"]
    assert isinstance(found, dict)
    return found


def node_of(number: int) -> Node:
    slot = SlotName(f"trainer-{number}")
    return Node(
        id=node_id(RUN, slot, 1),
        run_id=RUN,
        slot=slot,
        attempt=1,
        role=Role.TRAINER,
        offer_id=OFFER.id,
        status=NodeStatus.REQUESTED,
        requested_at_s=0.0,
    )


def trainers(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    changes = ({"role": Role.TRAINER, "rank": rank, "gang": len(nodes)} for rank in range(len(nodes)))
    return tuple(node.model_copy(update=change) for node, change in zip(nodes, changes, strict=True))


def test_pool_zone_and_tenure_are_those_of_the_plan(offer: Offer, nodes: tuple[Node, ...]) -> None:
    task = sky_task(Order(nodes[:1], offer, (command(),)), "us-east-1a", FOLDERS)
    assert resources(task)["infra"] == "aws/us-east-1/us-east-1a"
    assert resources(task)["instance_type"] == "g5.xlarge" and resources(task)["use_spot"] is True
    assert task["name"] == "hx-main-1-rollout-0-0" and task["num_nodes"] == 1
    owned = offer.model_copy(update={"tenure": Tenure.ON_DEMAND, "zone": None})
    task = sky_task(Order(nodes[:1], owned, (command(),)), None, FOLDERS)
    assert resources(task)["infra"] == "aws/us-east-1" and resources(task)["use_spot"] is False


def test_a_machine_ends_itself_when_nothing_runs_on_it(offer: Offer, nodes: tuple[Node, ...]) -> None:
    for role, gang in ((Role.ROLLOUT, nodes[:1]), (Role.TRAINER, trainers(nodes))):
        task = sky_task(Order(gang, offer, tuple(command() for _ in gang)), None, FOLDERS)
        assert resources(task)["autostop"] == {"idle_minutes": AUTODOWN_MINUTES, "down": True}, role


def test_google_attaches_gpus_to_a_host(offer: Offer, nodes: tuple[Node, ...]) -> None:
    machine = {"cloud": "gcp", "region": "us-central1", "instance_type": "n1-standard-8+2xT4", "gpu": "T4"}
    task = sky_task(
        Order(nodes[:1], offer.model_copy(update=machine | {"gpu_count": 2}), (command(),)), "us-central1-a", FOLDERS
    )
    assert resources(task)["instance_type"] == "n1-standard-8" and resources(task)["accelerators"] == {"T4": 2}


def test_disks_are_as_large_as_what_is_kept_there(offer: Offer, nodes: tuple[Node, ...]) -> None:
    plain = sky_task(Order(nodes[:1], offer, (command(),)), None, FOLDERS)
    assert not {"disk_size", "disk_tier"} & set(resources(plain)), "SkyPilot's own is enough"
    large = tuple(node.model_copy(update={"disk_gib": 4900}) for node in nodes[:1])
    told = resources(sky_task(Order(large, offer, (command(),)), None, FOLDERS))
    assert (told["disk_size"], told["disk_tier"]) == (4900, "high")
    elsewhere = offer.model_copy(update={"cloud": "gcp", "instance_type": "a3-highgpu-8g", "gpu": "H100"})
    told = resources(sky_task(Order(large, elsewhere, (command(),)), None, FOLDERS))
    assert told["disk_size"] == 4900 and "disk_tier" not in told


def test_a_replica_is_one_cluster_whose_machines_know_their_ranks(offer: Offer, nodes: tuple[Node, ...]) -> None:
    members = tuple(
        node.model_copy(update={"role": Role.ROLLOUT, "rank": rank, "gang": 2, "head": nodes[0].slot})
        for rank, node in enumerate(nodes[:2])
    )
    secrets = ({"HEXCLOUD_NODE_TOKEN": "zero"}, {"HEXCLOUD_NODE_TOKEN": "one"})
    task = sky_task(Order(members, offer, tuple(command(one) for one in secrets)), "us-east-1a", FOLDERS)
    assert task["num_nodes"] == 2 and resources(task)["infra"] == "aws/us-east-1/us-east-1a"
    assert task["secrets"] == {"HEXCLOUD_NODE_TOKEN_0": "zero", "HEXCLOUD_NODE_TOKEN_1": "one"}
    assert "ports" not in resources(task), "they speak on their own network only"
    assert str(task["run"]).endswith("-m hexcloud.node rollout\n")


def test_only_a_trainer_s_head_opens_a_port(offer: Offer, nodes: tuple[Node, ...]) -> None:
    spec = NodeSpec(
        run_id=nodes[0].run_id,
        node_id=nodes[0].id,
        slot=nodes[0].slot,
        role=Role.TRAINER,
        task="sort_digits",
        seed=0,
        slots=0,
        samples_per_step=8,
        group_size=4,
        eta=2,
        steps=5,
        run_dir="run",
        output="out",
        tokens_per_sample=100,
        coordinator_port=4443,
    )
    files = {"node.json": spec.model_dump_json()}
    gang = trainers(nodes[:2])
    task = sky_task(Order(gang, offer, (command(files=files), command(files=files))), None, FOLDERS)
    assert resources(task)["ports"] == ["4443"] and task["num_nodes"] == 2
    rollout = sky_task(Order(nodes[:1], offer, (command(files=files),)), None, FOLDERS)
    assert "ports" not in resources(rollout)


@given(token=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=12))
def test_a_secret_is_nowhere_but_in_secrets(token: str) -> None:
    gang = trainers((node_of(0), node_of(1)))
    commands = tuple(
        command({"HEXCLOUD_NODE_TOKEN": f"{token}{rank}", "HEXCLOUD_RUN_SECRET": token}) for rank in (0, 1)
    )
    task = sky_task(Order(gang, OFFER, commands), None, FOLDERS)
    assert task.pop("secrets") == {
        "HEXCLOUD_NODE_TOKEN_0": f"{token}0",
        "HEXCLOUD_NODE_TOKEN_1": f"{token}1",
        "HEXCLOUD_RUN_SECRET": token,
    }
    assert token not in str(task)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_finds_its_own_variables_and_none_of_the_others(
    offer: Offer, nodes: tuple[Node, ...], rank: int, tmp_path: Path
) -> None:
    secrets = ({"TOKEN": "zero", "ONLY_HEAD": "yes", "SAME": "both"}, {"TOKEN": "one", "SAME": "both"})
    task = sky_task(Order(trainers(nodes[:2]), offer, tuple(command(one) for one in secrets)), None, FOLDERS)
    lines, _, _ = str(task["run"]).partition("set -euo pipefail")
    given = task["secrets"]
    assert isinstance(given, dict)
    environ = {name: str(value) for name, value in given.items()} | {"SKYPILOT_NODE_RANK": str(rank)}
    shell = ["/bin/bash", "-e", "-c", f"{lines}\nenv"]
    done = subprocess.run(shell, env=environ, capture_output=True, text=True, check=True, cwd=tmp_path)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {name: seen[name] for name in seen if name.startswith(("TOKEN", "ONLY", "SAME"))} == secrets[rank]


def test_files_lie_in_a_folder_for_each_rank(tmp_path: Path) -> None:
    write_files(tmp_path, [command(files={"node.json": "zero"}), command(files={"node.json": "one"})])
    assert [(tmp_path / rank / "node.json").read_text() for rank in ("0", "1")] == ["zero", "one"]
    with pytest.raises(UnknownProvisionError, match="not a plain file name"):
        write_files(tmp_path, [command(files={"../node.json": "x"})])


def test_the_machines_of_a_replica_are_one_cluster_named_after_its_head(offer: Offer, nodes: tuple[Node, ...]) -> None:
    pair = tuple(
        node.model_copy(update={"gang": 2, "rank": rank, "head": nodes[0].slot}) for rank, node in enumerate(nodes[:2])
    )
    order = Order(pair, offer, (command({"TOKEN": "a"}), command({"TOKEN": "b"})))
    task = sky_task(order, "us-east-1a", FOLDERS)
    assert task["name"] == "hx-main-1-rollout-0-0" and task["num_nodes"] == 2
    assert "hexcloud.node rollout" in str(task["run"]) and "ports" not in {
        name for name, value in resources(task).items() if value
    }
    labels = resources(task)["labels"]
    assert isinstance(labels, dict) and labels["hexcloud-gang"] == "2"
    assert {labels["hexcloud-node-0"], labels["hexcloud-node-1"]} == {"rollout-0_2e0", "rollout-1_2e0"}
