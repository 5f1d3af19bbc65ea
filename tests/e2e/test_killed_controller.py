"""kill -9 of a controller's process at ten points of a launch and ten of a teardown, against EC2's own list.

Two of them happen to real SkyPilot too (tests/e2e/cloud/test_up.py): a controller dies after EC2's yes to a launch, and
between two ends.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.run import RunState
from tests.e2e.ec2_controller import REGIONS, main, run_name

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.e2e.ec2_controller"])
ONE_TRAINER, TWO_TRAINERS = "20", "95"
"""Samples per second. Plans in the small market's part of AWS: a trainer or a gang of two, and rollout nodes."""


class Point(NamedTuple):
    operation: str
    nth: int
    when: str


LAUNCH = {
    "before the plan is stored": Point("save_plan", 0, "before"),
    "after the plan is stored": Point("save_plan", 0, "after"),
    "between two intents": Point("save_node", 0, "after"),
    "before the first call": Point("launch", 0, "before"),
    "before EC2 hears of it": Point("run_instances", 0, "before"),
    "after EC2's yes, before it is noted": Point("run_instances", 0, "after"),
    "between two machines": Point("launch", 0, "after"),
    "after the last machine's yes": Point("run_instances", 2, "after"),
    "while machines are set up": Point("set_up", 1, "before"),
    "when the first machine is noted as up": Point("save_node", 3, "after"),
}
TEARDOWN = {
    "before the first machine is asked to end": Point("terminate", 0, "before"),
    "after the first record says so": Point("save_node", 0, "after"),
    "before EC2 hears of the end": Point("terminate_instances", 0, "before"),
    "after EC2's yes to the end": Point("terminate_instances", 0, "after"),
    "between two ends": Point("terminate", 1, "before"),
    "after the last end": Point("terminate_instances", 2, "after"),
    "before the ends are looked for": Point("list_nodes", 1, "before"),
    "after the ends are seen": Point("list_nodes", 1, "after"),
    "when the first end is noted": Point("save_node", 3, "after"),
    "before the run's end is noted": Point("set_run_state", 0, "before"),
}


def control(folder: Path, target: str = ONE_TRAINER, point: Point | None = None) -> int:
    """Control the folder's run in a process of its own; return how that ended."""
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    process = PROCESSES.Process(target=main, args=(folder, float(target), point and tuple(point), aws))
    process.start()
    process.join(120)
    assert process.exitcode in {0, -signal.SIGKILL}, process.exitcode
    return process.exitcode


def on_ec2(folder: Path) -> list[dict[str, str]]:
    """Return the tags of the machines that EC2 itself says run or start, of this folder's run."""
    wanted = [{"Name": "tag:hexcloud-run", "Values": [run_name(folder)]}]
    states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    found = []
    for region in REGIONS:
        reservations = boto3.client("ec2", region).describe_instances(Filters=wanted + states)["Reservations"]
        for instance in (one for reservation in reservations for one in reservation["Instances"]):
            found.append({tag["Key"]: tag["Value"] for tag in instance["Tags"]})
    return found


def stop(folder: Path) -> None:
    store = SqliteStore(folder / "hexcloud.db")
    store.set_run_state(store.runs()[0].id, RunState.STOPPING, "down")
    store.close()


def one_machine_for_each_slot(folder: Path) -> None:
    """No orphan and no double: EC2 lists what the records say, once."""
    store = SqliteStore(folder / "hexcloud.db")
    nodes = [node for node in store.nodes(store.runs()[0].id) if node.status is not NodeStatus.GONE]
    store.close()
    slots = sorted(tags["hexcloud-slot"] for tags in on_ec2(folder))
    assert slots == sorted(node.slot for node in nodes)
    assert len(set(slots)) == len(slots) >= 3


def nothing_is_left(folder: Path) -> None:
    assert on_ec2(folder) == []
    store = SqliteStore(folder / "hexcloud.db")
    run = store.runs()[0]
    assert run.state in {RunState.DONE, RunState.FAILED}
    assert all(node.status is NodeStatus.GONE for node in store.nodes(run.id))
    store.close()


@pytest.fixture
def folder(moto: Any, tmp_path: Path) -> Iterator[Path]:
    moto.tell(types=["m5.large"])
    yield tmp_path
    for region in REGIONS:
        client = boto3.client("ec2", region)
        reservations = client.describe_instances()["Reservations"]
        ids = [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]
        if ids:
            client.terminate_instances(InstanceIds=ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCH)
def test_a_controller_killed_in_a_launch_leaves_no_orphan_and_no_double(folder: Path, name: str) -> None:
    assert control(folder, point=LAUNCH[name]) == -signal.SIGKILL, "it never came to this point"
    assert control(folder) == 0
    one_machine_for_each_slot(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEARDOWN)
def test_a_controller_killed_in_a_teardown_leaves_nothing(folder: Path, name: str) -> None:
    assert control(folder) == 0
    stop(folder)
    assert control(folder, point=TEARDOWN[name]) == -signal.SIGKILL, "it never came to this point"
    assert control(folder) == 0
    nothing_is_left(folder)


@pytest.mark.slow
def test_a_gang_whose_controller_is_killed_after_the_clouds_yes_is_found_whole(folder: Path) -> None:
    gang = Point("run_instances", 0, "after")
    assert control(folder, TWO_TRAINERS) == 0
    one_machine_for_each_slot(folder)
    gangs = [tags for tags in on_ec2(folder) if tags["hexcloud-gang"] == "2"]
    assert len({tags["hexcloud-node"] for tags in gangs}) == 2
    stop(folder)
    assert control(folder, TWO_TRAINERS, gang._replace(operation="terminate_instances")) == -signal.SIGKILL
    assert control(folder, TWO_TRAINERS) == 0
    nothing_is_left(folder)
