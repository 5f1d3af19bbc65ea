"""The bed: real SkyPilot before an emulated EC2 whose machines boot, all in namespaces without a way out.

By hand: `python -m tests.e2e.cloud.bed FOLDER` keeps one until Ctrl-C; `FOLDER/run ARGV...` runs a program inside.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

from tests.clouds.moto_stubs import WATCHER_KEY
from tests.e2e.cloud.image import image
from tests.e2e.cloud.machines import cloud_config
from tests.e2e.cloud.network import BRIDGE, assert_sealed, child, entered, entering
from tests.e2e.cloud.scenario import USUAL, Scenario
from tests.e2e.cloud.seeds import BUCKET, CATALOG, seed_account, seed_home, seed_keys

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent
ENDPOINT = f"http://{BRIDGE}:5000"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "made-up"}
"""Of this account's user; programs inside find them in a file, as `aws configure` leaves it."""
UP_WITHIN_S = 120.0
NODE_LOGS = """
cd "$BED"
find logs/nodes nodes/*/upper/home/ubuntu/sky_logs -name '*.log' 2> /dev/null | sort | while read -r log; do
    echo "== $log"
    tail -n 15 "$log"
done
"""


class Billed(NamedTuple):
    """One machine as EC2 billed it."""

    instance_id: str
    instance_type: str
    zone: str
    is_spot: bool
    launched_at_s: float
    seconds: float
    """From launch to termination, or to now."""
    is_running: bool
    tags: Mapping[str, str]


class Bed:
    """Everything that `start` began ends with `stop`, or with the process that started it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.store = f"s3://{BUCKET}"
        self.endpoint = ENDPOINT
        (folder / "logs").mkdir(parents=True)
        self.home.mkdir()
        self.scenario = Scenario(folder)
        self.took_s: dict[str, float] = {}
        """What each part of the start took."""
        self._outer: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def regions(self) -> list[str]:
        return list(USUAL["regions"])

    @property
    def env(self) -> dict[str, str]:
        """The environment of programs inside: a home of its own, the cloud's address, and nothing of this account's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SKYPILOT_", "PIP_"))}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(ROOT),
            "HEXCLOUD_HOME": str(self.home / "hexcloud"),
            "OMP_NUM_THREADS": "1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_GCE_CHECK": "true",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            # The server makes a wheel of itself and finds no index: it must do with the build tools that are here.
            "PIP_NO_BUILD_ISOLATION": "0",
        }

    def start(self) -> None:
        with self._timed("image"):
            built = image()
        with self._timed("namespaces"):
            self._start_namespaces(built)
        with self._timed("cloud"):
            self.start_moto()
            with entered(self._first):
                seed_account(self._client, self.regions)
            site = sysconfig.get_paths()["purelib"]
            places = ["--folder", str(self.folder), "--scenario", str(self.scenario.path), "--site", site]
            command = [sys.executable, "-m", "tests.e2e.cloud.machines", *places, "--endpoint", self.endpoint]
            self.start_program("machines", command)
        with self._timed("catalog"):
            seed_home(self.home, self.endpoint, self.regions)
            seed_keys(self.home, KEYS)
            hexcloud = [sys.executable, "-m", "hexcloud.cli", "catalog"]
            self.run([*hexcloud, "refresh", "--cloud", "aws"])
            self.run([*hexcloud, "export", str(self.home / CATALOG), "--cloud", "aws"])
        with self._timed("sky api"):
            assert_sealed(self._first)
            # It waits for its server no longer than it likes; on a busy machine the server may be up a little later.
            if self.run(["sky", "api", "start"], check=False).returncode != 0:
                self.run(["sky", "api", "start"])

    def stop(self) -> None:
        """Kill the first process of the namespaces: all that lives in them dies with it."""
        if self._outer is None:
            return
        if self._first:
            os.kill(self._first, signal.SIGKILL)
        for process in (self._outer, *self._programs):
            process.wait()
        self._outer, self._first, self._programs = None, 0, []

    def run(
        self, argv: list[str], check: bool = True, timeout_s: float = 600.0, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program inside to its end; one that fails raises RuntimeError with what it said."""
        command = [*self._entering(), *argv]
        done = subprocess.run(
            command,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def start_program(
        self, name: str, argv: list[str], env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a program inside; it writes to logs/NAME.log. To hurt it, see `pid_of`: this process is its keeper."""
        with (self.folder / "logs" / f"{name}.log").open("a") as log:
            program = subprocess.Popen(
                [*self._entering(), *argv],
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._programs.append(program)
        return program

    @staticmethod
    def pid_of(keeper: "subprocess.Popen[bytes]") -> int:
        """Return the pid, as seen from here, of the program that `start_program` started."""
        return child(keeper.pid)

    def programs(self) -> int:
        """Return how many programs were started so far."""
        return len(self._programs)

    def end_programs(self, since: int) -> None:
        """Kill those that were started when there were so many already."""
        for keeper in self._programs[since:]:
            if keeper.poll() is None:
                os.kill(self.pid_of(keeper), signal.SIGKILL)
            keeper.wait()

    def start_moto(self) -> "subprocess.Popen[bytes]":
        """Start the cloud's API. A second one, after the first has died, begins with an empty account."""
        port = self.endpoint.rpartition(":")[2]
        command = [sys.executable, "-m", "tests.clouds.moto_server", "--scenario", str(self.scenario.path)]
        moto = self.start_program("moto", [*command, "--host", BRIDGE, "--port", port])
        self._wait("moto", self._answers)
        return moto

    def _answers(self) -> bool:
        return self.run(["curl", "-sf", f"{self.endpoint}/moto-api/"], check=False).returncode == 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let this thread talk to the cloud and to nodes; programs it starts meanwhile have the bed's network too."""
        with entered(self._first):
            yield

    def ec2(self, region: str = "us-east-1") -> Any:
        """Return a client that no fault meets. It connects only while this thread is `inside`."""
        return self._client("ec2", region)

    def _client(self, service: str, region: str) -> Any:
        return boto3.client(
            service,
            region,
            endpoint_url=self.endpoint,
            aws_access_key_id=WATCHER_KEY,
            aws_secret_access_key="made-up",
            config=Config(s3={"addressing_style": "path"}),
        )

    def ssh(self, address: str, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on a node that SkyPilot has set up, as its user."""
        (key,) = self.home.glob(".sky/clients/*/ssh/sky-key")
        known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        return self.run(["ssh", "-i", str(key), *known, f"ubuntu@{address}", command], check=False)

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """Return the machines of all regions, oldest first: those in these states, or all that ever were."""
        filters = [{"Name": "instance-state-name", "Values": list(states)}] if states else []
        found = []
        with self.inside():
            for region in self.regions:
                for page in self.ec2(region).get_paginator("describe_instances").paginate(Filters=filters):
                    found += [one for each in page["Reservations"] for one in each["Instances"]]
        return sorted(found, key=lambda one: (one["LaunchTime"], one["InstanceId"]))

    def running(self) -> list[dict[str, Any]]:
        """Return the machines that bill: none may be left at the end of anything."""
        return self.instances("pending", "running", "stopping", "shutting-down")

    def told_at_boot(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cloud-config that a machine was started with."""
        with self.inside():
            client = self.ec2(instance["Placement"]["AvailabilityZone"][:-1])
            said = client.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        return cloud_config(said["UserData"]["Value"])

    def terminate(self, instance_id: str) -> None:
        """Take a machine as EC2 does when there was no notice."""
        with self.inside():
            for region in self.regions:
                ids = [{"Name": "instance-id", "Values": [instance_id]}]
                if self.ec2(region).describe_instances(Filters=ids)["Reservations"]:
                    self.ec2(region).terminate_instances(InstanceIds=[instance_id])

    def billed(self) -> list[Billed]:
        """Return every machine that ever ran, with the seconds that EC2 counts."""
        return [_billed(instance) for instance in self.instances()]

    def node_logs(self) -> str:
        """Return the ends of what the tasks on the machines printed, of those that are gone as well."""
        return self.run(["sh", "-c", NODE_LOGS], check=False, env={"BED": str(self.folder)}).stdout

    def _start_namespaces(self, built: Path) -> None:
        # Whatever ends this process, the bed ends too: the kernel kills `unshare`, and that its child.
        tied = ["setpriv", "--pdeathsig", "KILL"]
        apart = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / "logs" / "init.log").open("w") as log:
            self._outer = subprocess.Popen(
                [*tied, *apart, str(HERE / "bed_init.sh"), str(built), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait("init", (self.folder / "ready").exists)
        self._first = child(self._outer.pid)
        assert_sealed(self._first)
        run = self.folder / "run"
        assigned = [f"{name}={value}" for name, value in self.env.items()]
        run.write_text(f'#!/bin/sh\nexec {shlex.join(self._entering())} env -i {shlex.join(assigned)} "$@"\n')
        run.chmod(0o755)

    def _entering(self) -> list[str]:
        return entering(self._first, str(ROOT))

    def _wait(self, name: str, is_there: Callable[[], bool]) -> None:
        until = time.monotonic() + UP_WITHIN_S
        while not is_there():
            if time.monotonic() > until:
                log = (self.folder / "logs" / f"{name}.log").read_text()
                raise RuntimeError(f"{name} did not come up within {UP_WITHIN_S:.0f} s:\n{log}")
            time.sleep(0.1)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begun_at = time.monotonic()
        yield
        self.took_s[part] = round(time.monotonic() - begun_at, 1)


def _billed(instance: Mapping[str, Any]) -> Billed:
    is_running = instance["State"]["Name"] != "terminated"
    ended_at = datetime.now(UTC)
    if not is_running:  # "User initiated (2026-11-29 22:30:01 UTC)"
        words = instance["StateTransitionReason"].partition("(")[2].rstrip(")").removesuffix(" UTC")
        ended_at = datetime.fromisoformat(words).replace(tzinfo=UTC)
    return Billed(
        instance["InstanceId"],
        instance["InstanceType"],
        instance["Placement"]["AvailabilityZone"],
        instance.get("InstanceLifecycle") == "spot",
        instance["LaunchTime"].timestamp(),
        (ended_at - instance["LaunchTime"]).total_seconds(),
        is_running,
        {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])},
    )


def main(argv: list[str]) -> None:
    """Keep a bed until Ctrl-C or SIGTERM."""
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores Ctrl-C unless told
        signal.signal(ending, signal.default_int_handler)
    bed = Bed(Path(argv[0]).resolve())
    try:
        bed.start()
        sys.stdout.write(json.dumps({"run": str(bed.folder / "run"), "took_s": bed.took_s}) + "\n")
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        bed.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
