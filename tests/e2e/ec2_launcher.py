"""Ec2Launcher: a provisioner that speaks to EC2 itself, without SkyPilot, and as slowly as a cloud: step by step."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.clouds.machines import Machine
from hexcloud.adapters.provisioners.naming import (
    CLUSTER,
    NODE,
    RUN,
    cluster_name,
    node_ids,
    own_tags,
    run_label,
    tags_of,
)
from hexcloud.domain.command import Command
from hexcloud.domain.errors import (
    CapacityError,
    CredentialsError,
    NotYetError,
    ProvisionError,
    QuotaError,
    RateLimitError,
    UnknownProvisionError,
)
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.offer import Offer

IMAGE = "ami-12c6146b"
ONCE = Config(retries={"total_max_attempts": 1})
"""The controller asks again, not the SDK."""
SET_UP = "hexcloud-set-up"
ERRORS: dict[str, type[ProvisionError]] = {
    "InsufficientInstanceCapacity": CapacityError,
    "VcpuLimitExceeded": QuotaError,
    "RequestLimitExceeded": RateLimitError,
    "Throttling": RateLimitError,
    "RequestExpired": CredentialsError,
    "AuthFailure": CredentialsError,
}


class Ec2Launcher:
    """Implements ports.Provisioner for one run. Remembers nothing: all it knows is on the machines' tags."""

    is_elastic = False

    def __init__(self, run_id: RunId, regions: Iterable[str], around: Callable[[str], Any]) -> None:
        """`around(name)` is a context entered around each call that changes something on EC2."""
        self._run_id = run_id
        self._regions = tuple(regions)
        self._machines = AwsMachines()
        self._around = around

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """Start the machines, then tell them apart, then set them up: one step at each call."""
        cluster = cluster_name(self._run_id, nodes[0].slot, nodes[0].attempt)
        listed = self._machines.listed({RUN: run_label(self._run_id), CLUSTER: cluster}, self._regions)
        here = sorted(listed, key=lambda machine: machine.id)
        if not here:
            self._run_instances(nodes, offer, cluster)
            raise NotYetError("starting", offer.id, phase="provision")
        for machine, node in zip(here, nodes, strict=True):
            if machine.tags.get(NODE) != own_tags(node)[NODE]:
                self._machines.tag(machine, own_tags(node))
        if any(SET_UP not in machine.tags for machine in here):
            with self._around("set_up"):
                for machine in here:
                    self._machines.tag(machine, {SET_UP: "yes"})
            raise NotYetError("setting up", offer.id, phase="setup")

    def terminate(self, node_id: NodeId) -> None:
        """End the machines of a node's gang."""
        here = self._of(node_id)
        if here:
            with self._around("terminate_instances"):
                self._machines.end(here)

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return the nodes that EC2 lists."""
        listed = self._machines.listed({RUN: run_label(run_id)}, self._regions)
        return tuple(sorted({node for machine in listed for node in node_ids(run_id, machine.tags)}))

    def _of(self, node_id: NodeId) -> tuple[Machine, ...]:
        listed = self._machines.listed({RUN: run_label(self._run_id)}, self._regions)
        clusters = {one.tags[CLUSTER] for one in listed if node_id in node_ids(self._run_id, one.tags)}
        return tuple(machine for machine in listed if machine.tags[CLUSTER] in clusters)

    def _run_instances(self, nodes: tuple[Node, ...], offer: Offer, cluster: str) -> None:
        tags = [{"Key": key, "Value": value} for key, value in tags_of(nodes, cluster).items()]
        with self._around("run_instances"), _typed(offer):
            boto3.client("ec2", offer.region, config=ONCE).run_instances(
                ImageId=IMAGE,
                InstanceType="m5.large",
                MinCount=len(nodes),
                MaxCount=len(nodes),
                ClientToken=cluster,
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )


@contextmanager
def _typed(offer: Offer) -> Any:
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise ERRORS.get(code, UnknownProvisionError)(str(error), offer.id, code) from error
