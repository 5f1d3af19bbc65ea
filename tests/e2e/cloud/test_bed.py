"""The bed itself: a real launch runs, a refusal is told with its code, machines die and are gone, no packet leaves."""

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.e2e.cloud.bed import Bed
from tests.e2e.cloud.network import FAR_AWAY

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

TOKEN = "curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token"
READ = f'curl -sf -H "X-aws-ec2-metadata-token: $({TOKEN})" http://169.254.169.254/latest/meta-data'


def launch(bed: Bed, cluster: str, zone: str, script: str) -> "subprocess.CompletedProcess[str]":
    asked = ["--instance-type", "g5.xlarge", "--use-spot", "--infra", f"aws/{zone[:-1]}/{zone}"]
    return bed.run(["sky", "launch", "-y", "-c", cluster, *asked, script], check=False)


def wait(is_so: Callable[[], bool], within_s: float = 90.0) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.5)


def test_no_packet_finds_a_way_out(bed: Bed) -> None:
    for address in FAR_AWAY:
        said = bed.run(["ip", "route", "get", address], check=False)
        assert said.returncode != 0 and "unreachable" in said.stderr
    assert bed.run(["getent", "hosts", "example.org"], check=False).returncode == 2  # no such name


def test_a_spot_node_is_launched_lost_and_gone(bed: Bed) -> None:
    done = launch(bed, "one", "us-east-1b", f"echo I am $({READ}/instance-id), a $({READ}/instance-life-cycle)")
    assert done.returncode == 0, done.stdout + done.stderr
    (node,) = bed.running()
    assert f"I am {node['InstanceId']}, a spot" in done.stdout
    assert node["Placement"]["AvailabilityZone"] == "us-east-1b"
    address = node["PrivateIpAddress"]
    reaches = bed.ssh(address, "python3 -c 'import socket; socket.create_connection((\"198.51.100.1\", 80), 5)'")
    assert "Network is unreachable" in reaches.stderr

    assert bed.ssh(address, "test -e ~/.aws/credentials").returncode == 0, "SkyPilot by itself copies the keys"

    sandbox = str(bed.folder / "nodes" / node["InstanceId"])
    bed.run(["test", "-e", sandbox])
    bed.scenario.interrupt(node["InstanceId"], notice_s=20.0)
    told = bed.ssh(address, f"{READ}/spot/instance-action")
    assert json.loads(told.stdout)["action"] == "terminate"
    wait(lambda: bed.running() == [])
    (billed,) = [one for one in bed.billed() if one.instance_id == node["InstanceId"]]
    assert not billed.is_running and billed.seconds > 5
    wait(lambda: bed.run(["test", "-e", sandbox], check=False).returncode != 0)
    known = bed.run(["sky", "status", "--refresh", "-o", "json"]).stdout
    assert json.loads(known.splitlines()[-1]) == [], known


def test_a_zone_without_capacity_is_told_with_the_code_of_aws(bed: Bed) -> None:
    bed.scenario.update(no_capacity=[{"zone": "us-east-1c", "tenure": "spot"}])
    done = launch(bed, "two", "us-east-1c", "true")
    assert done.returncode != 0
    assert "InsufficientInstanceCapacity" in done.stdout + done.stderr
    refused = bed.scenario.calls(launch="refused")
    assert {(call["zone"], call["type"], call["tenure"]) for call in refused} == {("us-east-1c", "g5.xlarge", "spot")}
    assert bed.running() == []
