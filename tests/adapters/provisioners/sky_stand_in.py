"""SkyStandIn: a stand-in for SkyPilot's API server that rents on the emulated EC2 as SkyPilot does, in milliseconds.

It keeps what a real server keeps: requests with ids, clusters by name, one job each. Real SkyPilot is in the `cloud`
tier; this one is for every way that a launch can go wrong.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.exceptions import ClientError

from hexcloud.adapters.provisioners.sky_calls import Failure, JobState, Progress, Started, TaskRefusedError
from hexcloud.domain.errors import RateLimitError

LOG = "W instance.py:415] create_instances: Attempt failed with {error}\n"


@dataclass
class Request:
    """One request: `polls` looks until it is over."""

    id: str
    kind: str
    cluster: str
    polls: int
    progress: Progress = Progress.WAITING
    error: Exception | None = None


@dataclass
class SkyStandIn:
    """Implements SkyCalls. Its fields are the test's hand."""

    launch_polls: int = 0
    down_polls: int = 0
    job_state: JobState = JobState.RUNNING
    is_silent: bool = False
    refuses: Exception | None = None
    """What a task is refused with."""
    down_fails: bool = False
    tasks: dict[str, Any] = field(default_factory=dict)
    """Cluster -> its task."""
    clusters: dict[str, list[str]] = field(default_factory=dict)
    """Cluster -> its instances."""
    requests: list[Request] = field(default_factory=list)
    _ids: Any = field(default_factory=itertools.count)

    def launch(self, task: Any, cluster: str) -> str:
        self._answer()
        if self.refuses:
            raise TaskRefusedError(self.refuses)
        self.tasks[cluster] = task
        return self._begin("launch", cluster, self.launch_polls)

    def launches(self, cluster: str) -> tuple[str, ...]:
        self._answer()
        return tuple(one.id for one in reversed(self.requests) if (one.kind, one.cluster) == ("launch", cluster))

    def progress(self, request: str) -> Progress:
        self._answer()
        found = next((one for one in self.requests if one.id == request), None)
        if found is None:
            return Progress.FORGOTTEN
        if found.progress is Progress.WAITING:
            self._work(found)
        return found.progress

    def started(self, request: str) -> Started:
        found = next(one for one in self.requests if one.id == request)
        ips = [one["PrivateIpAddress"] for one in self.instances(found.cluster)]
        return Started(1, tuple(sorted(ips, reverse=True)))

    def failure(self, request: str) -> Failure:
        found = next(one for one in self.requests if one.id == request)
        return Failure(RuntimeError("Failed to acquire resources"), LOG.format(error=found.error))

    def has(self, cluster: str) -> bool:
        self._answer()
        return cluster in self.clusters

    def jobs(self, cluster: str) -> tuple[int, ...]:
        return (1,) if self.clusters.get(cluster) else ()

    def job(self, cluster: str, job: int | None) -> JobState:
        self._answer()
        return self.job_state

    def last_words(self, cluster: str, job: int | None) -> str:
        return "Traceback:\n\x1b[2mModuleNotFoundError: no torch\x1b[0m\n" if self.clusters.get(cluster) else ""

    def cancel(self, request: str) -> None:
        self._answer()
        next(one for one in self.requests if one.id == request).progress = Progress.FAILED

    def down(self, cluster: str) -> str:
        self._answer()
        return self._begin("down", cluster, self.down_polls)

    def restart(self) -> None:
        """As a real server: clusters are remembered, requests are not."""
        self.requests.clear()

    def instances(self, cluster: str) -> list[dict[str, Any]]:
        """Return what EC2 says of a cluster's machines that run."""
        ids = self.clusters.get(cluster, [])
        ec2 = self._ec2(cluster)
        found = ec2.describe_instances(InstanceIds=ids)["Reservations"] if ids else []
        ec2.close()
        all_of_them = [instance for reservation in found for instance in reservation["Instances"]]
        return [instance for instance in all_of_them if instance["State"]["Name"] == "running"]

    def of(self, kind: str) -> list[Request]:
        return [one for one in self.requests if one.kind == kind]

    def _begin(self, kind: str, cluster: str, polls: int) -> str:
        if kind == "launch":
            self.clusters.setdefault(cluster, [])
        self.requests.append(Request(f"r{next(self._ids)}", kind, cluster, polls))
        return self.requests[-1].id

    def _work(self, request: Request) -> None:
        if request.polls > 0:
            request.polls -= 1
            return
        try:
            (self._run if request.kind == "launch" else self._end)(request.cluster)
            request.progress = Progress.DONE
        except (ClientError, RuntimeError) as error:
            request.progress, request.error = Progress.FAILED, error

    def _run(self, cluster: str) -> None:
        task, ec2 = self.tasks[cluster], self._ec2(cluster)
        resources = task["resources"]
        zone = resources["infra"].split("/")[2]
        tags = [{"Key": key, "Value": value} for key, value in resources["labels"].items()]
        asked: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}} if resources["use_spot"] else {}
        try:
            started = ec2.run_instances(
                ImageId="ami-12c6146b",
                InstanceType=resources["instance_type"],
                MinCount=task["num_nodes"],
                MaxCount=task["num_nodes"],
                Placement={"AvailabilityZone": zone},
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
                **asked,
            )["Instances"]
        except ClientError:
            del self.clusters[cluster]
            raise
        finally:
            ec2.close()
        self.clusters[cluster] = [instance["InstanceId"] for instance in started]

    def _end(self, cluster: str) -> None:
        if self.down_fails:
            raise RuntimeError("SkyPilot does not want to")
        ids, ec2 = self.clusters[cluster], self._ec2(cluster)
        if ids:
            ec2.terminate_instances(InstanceIds=ids)
        ec2.close()
        del self.clusters[cluster]

    def _ec2(self, cluster: str) -> Any:
        return boto3.client("ec2", self.tasks[cluster]["resources"]["infra"].split("/")[1])

    def _answer(self) -> None:
        if self.is_silent:
            raise RateLimitError("the API server does not answer")
