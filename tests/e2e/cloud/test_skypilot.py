"""Real SkyPilot rents through our provisioner: a node, a refusal, a replica whose launch outlives the one who asked."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.provisioners.sky_config import DEAD_MAN
from hexcloud.adapters.provisioners.sky_launch import PROGRAM_FAILED, SETUP_FAILED
from tests.e2e.cloud.bed import Bed
from tests.e2e.cloud.rent import LARGE_DISK_GIB, SECRET

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(1800)]


def argv(folder: Path, what: str, run: str, count: int = 1, kind: str = "apart") -> list[str]:
    return [sys.executable, "-m", "tests.e2e.cloud.rent", str(folder), what, run, str(count), "use1-az6", kind]


def rent(bed: Bed, *asked: Any, **more: Any) -> list[dict[str, Any]]:
    """Run the renting program to its end; return what it said."""
    done = bed.run(argv(*asked, **more), timeout_s=900.0)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if said[-1].get("code") in (SETUP_FAILED, PROGRAM_FAILED):
        pytest.fail(f"{said[-1]}\n{bed.node_logs()}")
    return said


def phases(said: list[dict[str, Any]]) -> list[str]:
    told = [one["phase"] for one in said if "phase" in one]
    return [phase for at, phase in enumerate(told) if at == 0 or told[at - 1] != phase]


def tags(instance: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance["Tags"]}


def test_a_node_is_set_up_listed_and_ended_and_its_secrets_are_in_no_log(bed: Bed, tmp_path: Path) -> None:
    said = rent(bed, tmp_path, "up", "one")
    assert said[-1] == {"through": "up", "listed": ["one.rollout-0.1"]}, said[-1].get("said")
    assert phases(said) == ["provision", "setup"]
    (machine,) = bed.running()
    assert machine["Placement"]["AvailabilityZone"] == "us-east-1a" and machine["InstanceLifecycle"] == "spot"
    assert tags(machine)["hexcloud-node"] == "rollout-0_2e1"
    runs = bed.ssh(machine["PrivateIpAddress"], "pgrep -af 'hexcloud.node rollout'")
    assert "hexcloud-env" in runs.stdout and SECRET not in runs.stdout
    assert bed.ssh(machine["PrivateIpAddress"], "ls -d ~/.aws ~/.config/gcloud").stdout == "", "keys stay here"
    assert bed.told_at_boot(machine)["runcmd"] == [DEAD_MAN]
    logs = [path for path in (bed.home / "sky_logs").rglob("*") if path.is_file()]
    assert logs and not any(SECRET.encode() in path.read_bytes() for path in logs)

    assert rent(bed, tmp_path, "down", "one")[-1] == {"through": "down", "listed": []}
    assert bed.running() == []


def test_a_zone_without_room_is_refused_with_the_code_of_aws_and_costs_nothing(bed: Bed, tmp_path: Path) -> None:
    bed.scenario.update(no_capacity=[{"zone": "us-east-1a"}])
    refused = rent(bed, tmp_path, "up", "two")[-1]
    assert (refused["refused"], refused["code"]) == ("CapacityError", "InsufficientInstanceCapacity")
    assert refused["listed"] == [] and bed.running() == []


def test_a_replica_whose_launch_outlives_who_asked_is_found_again_and_never_rented_twice(
    bed: Bed, tmp_path: Path
) -> None:
    """A trainer's gang is rented in the same way."""
    asking = bed.start_program("asking", argv(tmp_path, "up", "three", 2, "replica"))
    until = time.monotonic() + 300.0
    while not bed.scenario.calls(launch="ok") and time.monotonic() < until:
        time.sleep(0.5)
    os.kill(bed.pid_of(asking), signal.SIGKILL)
    asking.wait(timeout=60.0)

    said = rent(bed, tmp_path, "up", "three", 2, "replica")
    assert said[-1]["listed"] == ["three.rollout-0.1", "three.rollout-1.1"], said[-1].get("said")
    launched = bed.scenario.calls(launch="ok")
    assert [call["count"] for call in launched] == [2]
    machines = {tags(machine)["hexcloud-node"]: machine for machine in bed.running()}
    assert set(machines) == {"rollout-0_2e1", "rollout-1_2e1"}
    assert {machine["Placement"]["AvailabilityZone"] for machine in machines.values()} == {"us-east-1a"}
    for rank, (_, machine) in enumerate(sorted(machines.items())):
        own = "readlink /proc/$(pgrep -f 'bin/python -m hexcloud.node rollout' | head -n 1)/cwd"
        folder = bed.ssh(machine["PrivateIpAddress"], own).stdout.strip()
        assert folder.endswith(f"/hexcloud-node/{rank}"), "its program has the rank that its tag says"
    assert {disk["Size"] for disk in disks(bed)} == {LARGE_DISK_GIB}

    said = rent(bed, tmp_path, "down", "three", 2, "replica")
    assert said[-1] == {"through": "down", "listed": []}, said
    assert bed.running() == []


def disks(bed: Bed) -> list[dict[str, Any]]:
    """Return the disks of the machines that run."""
    ids = [machine["InstanceId"] for machine in bed.running()]
    with bed.inside():
        found = bed.ec2("us-east-1").describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": ids}])
    return list(found["Volumes"])
