"""The machines behind EC2's answers: a sandbox with sshd boots for each instance, and dies when that is terminated.

Run inside the bed: `python -m tests.e2e.cloud.machines --folder DIR --scenario FILE --endpoint URL --site DIR`.
It goes on when the API is away for a while: machines live on until EC2 says that they do not.
"""

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import yaml
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from tests.clouds.moto_stubs import WATCHER_KEY
from tests.e2e.cloud import metadata
from tests.e2e.cloud.network import METADATA, child

HERE = Path(__file__).parent
FAILURES = (BotoCoreError, ClientError, ResponseParserError, OSError, subprocess.SubprocessError, RuntimeError)
"""Of one turn: the next one tries again."""
POLL_S = 0.5


class Machine(NamedTuple):
    """One booted sandbox."""

    instance: dict[str, Any]
    outer: "subprocess.Popen[bytes]"
    """`unshare`, which dies with its child."""
    first: int
    """The first process of the sandbox."""


class Sites(NamedTuple):
    """Where things are."""

    folder: Path
    scenario: Path
    endpoint: str
    libraries: Path


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps({"at_s": round(time.time(), 3), **facts}) + "\n")
    sys.stdout.flush()


def cloud_config(user_data: str) -> dict[str, Any]:
    """Return what a machine is told to do at its first boot; empty where that is no cloud-config."""
    text = user_data
    for _ in range(2):  # SkyPilot's is encoded by itself and once more by the SDK
        if "#cloud-config" in text:
            break
        try:
            text = base64.b64decode(text, validate=True).decode()
        except ValueError:
            return {}
    told: dict[str, Any] = (yaml.safe_load(text) or {}) if "#cloud-config" in text else {}
    return told


def authorized_keys(user_data: str) -> str:
    """Return the keys that a cloud-config lets in; none where there is no cloud-config."""
    users = [user for user in cloud_config(user_data).get("users", []) if isinstance(user, dict)]
    return "".join(f"{key}\n" for user in users for key in user.get("ssh_authorized_keys", []))


class Machines:
    """Every sandbox by instance id; one thread changes them, the metadata server reads."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._running: dict[str, Machine] = {}
        self._clients: dict[str, Any] = {}

    def turn(self) -> None:
        """Boot what runs and has no sandbox, kill what runs no more, take what was given notice."""
        alive = {instance["InstanceId"]: instance for instance in self._instances()}
        for gone in self._running.keys() - alive.keys():
            self._kill(self._running.pop(gone))
        for instance_id in alive.keys() - self._running.keys():
            self._running[instance_id] = self._boot(alive[instance_id])
        for instance_id, notice in self._scenario().get("notices", {}).items():
            if instance_id in alive and datetime.fromisoformat(notice["time"]).timestamp() <= time.time():
                region = alive[instance_id]["Placement"]["AvailabilityZone"][:-1]
                self._client(region).terminate_instances(InstanceIds=[instance_id])

    def at(self, address: str) -> metadata.Facts | None:
        found = next((one for one in self._running.values() if one.instance["PrivateIpAddress"] == address), None)
        if found is None:
            return None
        scenario, instance_id = self._scenario(), found.instance["InstanceId"]
        action = scenario.get("notices", {}).get(instance_id)
        return metadata.Facts(found.instance, action, scenario.get("rebalances", {}).get(instance_id))

    def _scenario(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self._sites.scenario.read_text())
        return read

    def _client(self, region: str) -> Any:
        if region not in self._clients:
            config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
            self._clients[region] = boto3.client(
                "ec2",
                region,
                endpoint_url=self._sites.endpoint,
                aws_access_key_id=WATCHER_KEY,
                aws_secret_access_key="made-up",
                config=config,
            )
        return self._clients[region]

    def _instances(self) -> Iterator[dict[str, Any]]:
        running = [{"Name": "instance-state-name", "Values": ["running"]}]
        for region in self._scenario()["regions"]:
            for page in self._client(region).get_paginator("describe_instances").paginate(Filters=running):
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]

    def _boot(self, instance: dict[str, Any]) -> Machine:
        instance_id, address = instance["InstanceId"], instance["PrivateIpAddress"]
        client = self._client(instance["Placement"]["AvailabilityZone"][:-1])
        said = client.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")["UserData"]
        folder = self._sites.folder / "nodes" / instance_id
        folder.mkdir()
        (folder / "authorized_keys").write_text(authorized_keys(said.get("Value", "")))
        apart = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        image, sites = self._sites.folder / "image", self._sites
        command = [*apart, HERE / "node_init.sh", image, folder, address, sites.endpoint, sites.libraries]
        with (self._sites.folder / "logs" / f"{instance_id}.log").open("w") as log:
            outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        machine = Machine(instance, outer, child(outer.pid))
        self._connect(machine)
        say(boot=instance_id, address=address, zone=instance["Placement"]["AvailabilityZone"])
        return machine

    def _connect(self, machine: Machine) -> None:
        port = f"v{machine.instance['InstanceId'][-12:]}"
        peer = ["peer", "name", "eth0", "netns", str(machine.first)]
        subprocess.run(["ip", "link", "add", port, "type", "veth", *peer], check=True)
        subprocess.run(["ip", "link", "set", port, "master", "br0", "up"], check=True)

    def _kill(self, machine: Machine) -> None:
        os.kill(machine.first, signal.SIGKILL)
        machine.outer.wait()
        name = machine.instance["InstanceId"]
        folder, told = self._sites.folder / "nodes" / name, self._sites.folder / "logs" / "nodes" / name
        if (said := folder / "upper/home/ubuntu/sky_logs").exists():  # what its tasks said outlives it
            told.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-r", said, told], check=False)
        subprocess.run(["rm", "-rf", folder], check=False)
        say(kill=machine.instance["InstanceId"])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "scenario", "site"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--endpoint", required=True)
    given = parser.parse_args(argv)
    machines = Machines(Sites(given.folder, given.scenario, given.endpoint, given.site))
    answers = metadata.server(METADATA, 80, machines.at)
    threading.Thread(target=answers.serve_forever, daemon=True).start()
    say(ready=True)
    while True:
        try:
            machines.turn()
        except FAILURES as error:
            say(error=repr(error))
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1:])
