"""A gang of three on emulated EC2 over HTTP: refused whole it costs nothing, and broken it is given back whole.

The controller is the real one, in this process; machines run, but no program on them, so none ever registers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from hexcloud.adapters.provisioners.naming import CLUSTER, cluster_name
from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.gang import BROKEN_GANG
from hexcloud.controller.report import RunFacts, build_report
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.offer import place_of
from hexcloud.domain.plan import Role
from tests.e2e.ec2_controller import REGIONS, Doom, new_run, open_controller
from tests.e2e.test_killed_controller import on_ec2
from tests.e2e.test_refusals_of_ec2 import World, end, is_up, live_until

pytestmark = pytest.mark.slow

TARGET = 55.0
"""Samples per second that take a gang of three where there are L40S only."""
RELEASED_WITHIN_S = 60.0
"""Of the wall: a tenth of the deadline for machines to register, on a machine that has other things to do."""


@pytest.fixture
def world(moto: Any, tmp_path: Path) -> Iterator[World]:
    moto.tell(types=["m5.large"])
    run = new_run(tmp_path, TARGET)
    store = SqliteStore(tmp_path / "hexcloud.db")
    store.save_run(run.model_copy(update={"policy": run.policy.model_copy(update={"gpus": ("L40S",)})}))
    store.close()
    made = open_controller(tmp_path, TARGET, Doom(None))
    yield made
    end(made, moto)
    assert on_ec2(tmp_path) == []


def gangs(world: World) -> list[list[Node]]:
    """Return the gangs that were ever asked for, each in rank order."""
    found: dict[float, list[Node]] = {}
    for node in world[1].nodes(world[2].id):
        if node.role is Role.TRAINER:
            found.setdefault(node.requested_at_s, []).append(node)
    return [sorted(gang, key=lambda node: node.rank) for _, gang in sorted(found.items())]


def instance_of(node: Node) -> str:
    region = place_of(node.offer_id).region
    asked = [
        {"Name": "tag:hexcloud-slot", "Values": [node.slot]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    (reservation,) = boto3.client("ec2", region).describe_instances(Filters=asked)["Reservations"]
    return str(next(one["InstanceId"] for one in reservation["Instances"]))


def test_a_gang_that_is_refused_whole_costs_nothing(world: World, moto: Any) -> None:
    moto.tell(types=["m5.large"], no_capacity=[{"tenure": "on_demand"}])
    live_until(world, lambda: bool(gangs(world)) and gangs(world)[0][0].status is NodeStatus.GONE)
    refused = gangs(world)[0]
    assert len(refused) == 3 and all("InsufficientInstanceCapacity" in node.cause for node in refused)
    started = [
        one["InstanceId"]
        for region in REGIONS
        for each in boto3.client("ec2", region).describe_instances()["Reservations"]
        for one in each["Instances"]
        if {"Key": "hexcloud-gang", "Value": "3"} in one["Tags"]
    ]
    billed = {entry.node_id for entry in world[1].ledger(world[2].id)}
    assert started == [] and billed.isdisjoint(node.id for node in refused)


def test_a_gang_whose_third_machine_dies_before_it_registers_is_given_back_whole_and_its_waste_told(
    world: World, tmp_path: Path
) -> None:
    live_until(world, lambda: is_up(world))
    (gang,) = gangs(world)
    assert [node.rank for node in gang] == [0, 1, 2] and all(node.status is NodeStatus.STARTING for node in gang)
    boto3.client("ec2", place_of(gang[2].offer_id).region).terminate_instances(InstanceIds=[instance_of(gang[2])])
    ids = {node.id for node in gang}
    live_until(world, lambda: all(node.status is NodeStatus.GONE for node in gangs(world)[0]), RELEASED_WITHIN_S)
    causes = [node.cause for node in gangs(world)[0]]
    assert causes[:2] == [BROKEN_GANG] * 2 and causes[2].startswith("vanished")
    clusters = {cluster_name(node.run_id, node.slot, node.attempt) for node in gang}
    assert not any(tags[CLUSTER] in clusters for tags in on_ec2(tmp_path))
    _, store, run = world
    report = build_report(RunFacts(run, ledger=store.ledger(run.id), nodes=store.nodes(run.id)))
    row = next(row for row in report.waste if set(row.nodes) == ids)
    assert row.usd > 0.0 and row.cause.startswith("vanished")
