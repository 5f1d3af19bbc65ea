"""`hexcloud down --all-runs` on machines of this computer and of emulated EC2."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from hexcloud.adapters.clock import RunClock
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.provisioners.naming import cluster_name, tags_of
from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.command import Command
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.simulator.world import small_market


def sleeper(run: RunRecord, node: Node) -> LocalProvisioner:
    """Start a process that carries the node's tag."""
    provisioner = LocalProvisioner(Path(run.run_dir), RunClock.of(run))
    command = Command(image=None, argv=("sleep", "300"), env={}, secrets={}, files={})
    provisioner.launch((node,), small_market().offers[0], (command,))
    return provisioner


@pytest.fixture
def forgotten(store: SqliteStore, run: RunRecord, moto: Any) -> Iterator[LocalProvisioner]:
    """A machine that goes on although the books say that its run and itself have ended."""
    (node,) = store.nodes(run.id)
    store.save_node(node.model_copy(update={"status": NodeStatus.GONE, "gone_at_s": 2000.0}))
    store.set_run_state(run.id, RunState.FAILED, "the provider did not confirm that its machines ended")
    provisioner = sleeper(run, node)
    yield provisioner
    provisioner.terminate(node.id)


def on_ec2(node: Node) -> str:
    tags = tags_of([node], cluster_name(node.run_id, node.slot, node.attempt))
    spec = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    started = boto3.client("ec2", "us-west-2").run_instances(**asked, TagSpecifications=[spec])
    return str(started["Instances"][0]["InstanceId"])


def test_nobody_is_swept_unasked(cli: Callable[..., Any], forgotten: LocalProvisioner, run: RunRecord) -> None:
    said = cli("down", "--all-runs")
    assert said.code == 2
    assert "nothing was ended: nobody can be asked; add --yes" in said.err
    assert run.id in said.out and "failed, nobody controls it" in said.out
    assert forgotten.list_nodes(run.id)


def test_every_machine_of_every_run_ends_and_what_it_cost_is_told(
    cli: Callable[..., Any], forgotten: LocalProvisioner, run: RunRecord, store: SqliteStore
) -> None:
    (node,) = store.nodes(run.id)
    somebodys = on_ec2(node.model_copy(update={"run_id": "another-computers"}))
    said = cli("down", "--all-runs", "--yes", "--unknown-too", "--json")
    answer = json.loads(said.out)
    rows = {row["run"]: row for row in answer["runs"]}
    assert rows[run.id] == {"run": run.id, "ended": [node.id], "billed_usd": 4.25}
    assert rows["another-computers"] == {"run": "another-computers", "ended": [somebodys], "billed_usd": None}
    assert answer["left"] == []
    assert "unknown here" in said.err
    assert forgotten.list_nodes(run.id) == ()
    (reservation,) = boto3.client("ec2", "us-west-2").describe_instances(InstanceIds=[somebodys])["Reservations"]
    assert reservation["Instances"][0]["State"]["Name"] in {"shutting-down", "terminated"}


def test_machines_of_runs_unknown_here_are_left_unless_they_are_asked_for(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord, moto: Any
) -> None:
    store.set_run_state(run.id, RunState.DONE, "done")
    (node,) = store.nodes(run.id)
    somebodys = on_ec2(node.model_copy(update={"run_id": "another-computers"}))
    said = cli("down", "--all-runs", "--yes")
    assert said.code == 1 and f"{somebodys} (g5.xlarge) of run another-computers" in said.err
    assert "--unknown-too" in said.err and "0 machines ended" in said.out
    (reservation,) = boto3.client("ec2", "us-west-2").describe_instances(InstanceIds=[somebodys])["Reservations"]
    assert reservation["Instances"][0]["State"]["Name"] == "running"
    ended = cli("down", "--all-runs", "--yes", "--unknown-too", "--json")
    assert somebodys in ended.out
    (reservation,) = boto3.client("ec2", "us-west-2").describe_instances(InstanceIds=[somebodys])["Reservations"]
    assert reservation["Instances"][0]["State"]["Name"] != "running"


def test_an_account_that_does_not_answer_is_a_failure_even_if_it_was_never_used(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord, moto: Any
) -> None:
    store.set_run_state(run.id, RunState.DONE, "done")
    moto.tell(faults=[{"do": "expired"}])
    said = cli("down", "--all-runs", "--yes")
    assert "machines on aws may still run" in said.err
    assert said.code == 1 and "no machine" not in said.out


def test_a_run_and_all_runs_are_not_asked_for_at_once(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("down", "main-1", "--all-runs", "--yes")
    assert said.code == 2 and "not both" in said.err
